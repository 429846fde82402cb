// Products with packed weights: y [tokens, out] = x [tokens, in] W^T. W [out, in] is stored as panels of NR output
// columns, so that one layout streams once through memory at one token and feeds register tiles at many. A float panel is
// [in][NR]. A bf16 panel shares 32 bits between two numbers, so that none has to be moved to another lane: column c of a
// depth and column W + c (a shift and a mask make them float), or, where an instruction multiplies pairs, two depths of a
// column. Knows nothing of layers.
#pragma once
#include <algorithm>

#include "vec.h"

namespace trilemma {

constexpr long MR = W == 16 ? 12 : 6;  // rows of a tile: 2 MR accumulators, two weights and one x fit the registers
constexpr long FETCH_AHEAD = 1024;     // bytes; the processor's own prefetcher stops at the end of each 4 KiB page

template <class T>
constexpr bool pairs = TRILEMMA_PAIRS && sizeof(T) == 2;
template <class T>
constexpr long panel_depth(long depth) { return pairs<T> ? (depth + 1) / 2 * 2 : depth; }
template <class T>
constexpr long in_panel(long depth, long column) {
  if (pairs<T>) return depth / 2 * 2 * NR + 2 * column + depth % 2;
  return depth * NR + (sizeof(T) == 4 ? column : column < W ? 2 * column : 2 * (column - W) + 1);
}

// Rows [out, in] to panels; rows and depths beyond the last are zeros.
template <class T>
inline void pack_panel(const T* rows, long out, long depth, long panel, T* packed) {
  for (long i = 0; i < panel_depth<T>(depth); ++i)
    for (long column = 0; column < NR; ++column) {
      const long row = panel * NR + column;
      packed[in_panel<T>(i, column)] = row < out && i < depth ? rows[row * depth + i] : T{};
    }
}

// A tile of `rows` of x against one panel. Row r's number i is x[r * row_stride + i * depth_stride]. While it computes, it
// fetches lines from `ahead`, `share` bytes for each depth: memory is read during the arithmetic of the panel before.
struct Ahead {
  const char* at;
  long share;
};

template <int rows, class T>
inline void add_depth(const float* x, long row_stride, const T* weights, vf (&out)[rows][2]) {
  vf left, right;
  load_pair(weights, left, right);
  stay_in_registers(left, right);
#pragma GCC unroll 16
  for (int row = 0; row < rows; ++row) {
    const vf value = splat(x[row * row_stride]);
    out[row][0] += value * left;
    out[row][1] += value * right;
  }
}

template <int rows, class T>
inline void tile_product(const float* x, long row_stride, long depth_stride, const T* panel, long depth, Ahead ahead,
                         vf (&out)[rows][2]) {
  for (long i = 0; i < depth; ++i) {
    __builtin_prefetch(ahead.at + i * ahead.share);
    add_depth<rows>(x + i * depth_stride, row_stride, panel + i * NR, out);
  }
}

// Few rows have too few chains of additions to hide their latency: some depths are summed apart.
template <int rows, class T>
inline void low_product(const float* x, long row_stride, const T* panel, long depth, vf (&out)[rows][2]) {
  constexpr int apart = rows == 1 ? 4 : 2;
  vf parts[apart][rows][2] = {};
  long i = 0;
  for (; i + apart <= depth; i += apart) {
    for (long byte = 0; byte < apart * NR * long(sizeof(T)); byte += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(panel + i * NR) + FETCH_AHEAD + byte);
#pragma GCC unroll 4
    for (int k = 0; k < apart; ++k) add_depth<rows>(x + i + k, row_stride, panel + (i + k) * NR, parts[k]);
  }
  for (; i < depth; ++i) add_depth<rows>(x + i, row_stride, panel + i * NR, parts[0]);
  for (int row = 0; row < rows; ++row)
    for (int side = 0; side < 2; ++side) {
      out[row][side] = parts[0][row][side] + parts[1][row][side];
      if constexpr (rows == 1) out[row][side] += parts[2][row][side] + parts[3][row][side];
    }
}

#if TRILEMMA_PAIRS
// The same of x in bf16: one instruction for two depths.
template <int rows>
inline void add_depths(const bf16* x, long row_stride, const bf16* weights, vf (&out)[rows][2]) {
  const vu left = load_bits(weights), right = load_bits(weights + 2 * W);
#pragma GCC unroll 16
  for (int row = 0; row < rows; ++row) {
    const vu value = splat_pair(x + row * row_stride);
    out[row][0] = add_pairs(out[row][0], value, left);
    out[row][1] = add_pairs(out[row][1], value, right);
  }
}

template <int rows>
inline void tile_product(const bf16* x, long row_stride, long, const bf16* panel, long depth, Ahead ahead, vf (&out)[rows][2]) {
  for (long i = 0; i < depth; i += 2) {
    __builtin_prefetch(ahead.at + i * ahead.share);
    __builtin_prefetch(ahead.at + (i + 1) * ahead.share);
    add_depths<rows>(x + i, row_stride, panel + i * NR, out);
  }
}

template <int rows>
inline void low_product(const bf16* x, long row_stride, const bf16* panel, long depth, vf (&out)[rows][2]) {
  vf parts[4][rows][2] = {};
  for (long i = 0; i < depth; i += 8)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      if (i + 2 * k >= depth) break;
      __builtin_prefetch(reinterpret_cast<const char*>(panel + (i + 2 * k) * NR) + FETCH_AHEAD);
      __builtin_prefetch(reinterpret_cast<const char*>(panel + (i + 2 * k) * NR) + FETCH_AHEAD + 64);
      add_depths<rows>(x + i + 2 * k, row_stride, panel + (i + 2 * k) * NR, parts[k]);
    }
  for (int row = 0; row < rows; ++row)
    for (int side = 0; side < 2; ++side)
      out[row][side] = (parts[0][row][side] + parts[1][row][side]) + (parts[2][row][side] + parts[3][row][side]);
}
#endif

template <int rows, class X, class T, class Use>
inline void one_tile(const X* x, long row_stride, long depth_stride, const T* panel, long depth, Ahead ahead, long first,
                     Use& use) {
  vf out[rows][2] = {};
  if (rows <= 3 && depth_stride == 1) {
    if constexpr (rows <= 3) low_product<rows>(x, row_stride, panel, depth, out);
  } else {
    tile_product<rows>(x, row_stride, depth_stride, panel, depth, ahead, out);
  }
  for (int row = 0; row < rows; ++row) use(first + row, out[row][0], out[row][1]);
}

// use(row, left, right) for all rows of x against one panel. Tiles of nearly equal height: 8 rows as 4 + 4, not 6 + 2,
// whose second tile would hardly pay its weight loads.
template <class X, class T, class Use>
inline void panel_product(const X* x, long row_stride, long depth_stride, long count, const T* panel, long depth, Use use) {
  const long tiles = (count + MR - 1) / MR, panel_bytes = depth * NR * long(sizeof(T));
  const char* const next = reinterpret_cast<const char*>(panel) + (tiles == 1 ? FETCH_AHEAD : panel_bytes);
  const long share = panel_bytes / (depth * tiles);
  long first = 0;
  for (long tile = 0; tile < tiles; ++tile) {
    const long rows = (count - first) / (tiles - tile) + ((count - first) % (tiles - tile) != 0);
    const X* at = x + first * row_stride;
    const Ahead ahead{next + tile * share * depth, share};
    switch (rows) {
#define TRILEMMA_ROWS(n) \
  case n: one_tile<n>(at, row_stride, depth_stride, panel, depth, ahead, first, use); break;
      TRILEMMA_ROWS(1) TRILEMMA_ROWS(2) TRILEMMA_ROWS(3) TRILEMMA_ROWS(4) TRILEMMA_ROWS(5) TRILEMMA_ROWS(6)
#if TRILEMMA_WIDTH == 16
      TRILEMMA_ROWS(7) TRILEMMA_ROWS(8) TRILEMMA_ROWS(9) TRILEMMA_ROWS(10) TRILEMMA_ROWS(11) TRILEMMA_ROWS(12)
#endif
#undef TRILEMMA_ROWS
    }
    first += rows;
  }
}

}  // namespace trilemma
