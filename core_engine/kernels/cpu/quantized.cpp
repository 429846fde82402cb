// Packing, and products of float32 activations with quantized weights (quantized.h). Integer products: integer.h.
#include "quantized.h"

#include <vector>

#include "expand.h"
#include "integer.h"

namespace trilemma {

namespace {

// -- activations as float32 ---------------------------------------------------------------------------------------------

template <int bits>
struct Turned {  // a token's input: pieces [groups][words][digits], sums [groups], and what centres the codes [groups]
  long pieces, groups;
  explicit Turned(const TrilemmaMatrix& w) : groups(w.depth / w.group) {
    pieces = groups * words_of(bits, w.group) * digits_of(bits);
  }
  long floats() const { return pieces + groups * 2; }
};

// Piece k of a word, which brings those below it along, gets the share of k less that of the piece above.
template <int bits>
inline float* turn_word(const float* share, float* to) {
  constexpr int D = digits_of(bits);
  for (int k = 0; k < D; ++k) {
    const float own = share[k] / float(1u << bits * k);
    to[k] = k + 1 < D ? own - share[k + 1] / float(1u << bits * (k + 1) % 32) : own;
  }
  return to + D;
}

template <int bits>
void turn_group(const float* x, long group, float* to, float& total, float& of_tops) {
  constexpr long step = bits == 6 ? 16 : 32 / bits, last = step - 1;
  for (long i = 0; i < group; i += step) {
    float some[step] = {};
    std::memcpy(some, x + i, sizeof(float) * std::min(step, group - i));
    for (long k = 0; k < step; ++k) total += some[k];
    of_tops += some[last];
    if constexpr (bits == 6) {
      for (long word = 0; word < 3; ++word) {
        float share[6];
        std::memcpy(share, some + 5 * word, sizeof(float) * 5);
        share[5] = some[last] * float(1 << 2 * word);
        to = turn_word<bits>(share, to);
      }
    } else {
      to = turn_word<bits>(some, to);
    }
  }
}

// The same a vector at a time, of whole words. x has a number after the last of these.
template <int bits>
void turn_vectors(const float* x, long group, float* to, float& total, float& of_tops) {
  constexpr long D = digits_of(bits), length = std::max<long>(D, W);
  float own[length], next[length], top[length];
  for (long k = 0; k < length; ++k) {
    own[k] = 1.0f / float(1u << bits * (k % D)), top[k] = k % D == D - 1;
    next[k] = k % D == D - 1 ? 0.0f : 1.0f / float(1u << bits * (k % D + 1));
  }
  vf totals{}, tops{};
  for (long i = 0; i < group; i += length)
    for (long k = 0; k < length; k += W) {
      const vf here = load(x + i + k);
      store(to + i + k, here * load(own + k) - load(x + i + k + 1) * load(next + k));
      totals += here, tops += here * load(top + k);
    }
  total = sum(totals), of_tops = sum(tops);
}

template <int bits>
void turn(const TrilemmaMatrix& w, const float* x, float* to) {
  const Turned<bits> t(w);
  const float half = float(1 << (bits - 1));
  float *sums = to + t.pieces, *centres = sums + t.groups;
  for (long group = 0; group < t.groups; ++group, x += w.group, to += t.pieces / t.groups) {
    float total = 0, of_tops = 0;
    constexpr long length = std::max<long>(digits_of(bits), W);
    long done = 0;
    if constexpr (bits != 6) {
      done = (w.group - (group + 1 == t.groups)) / length * length;  // the number after is read: never one after the input
      turn_vectors<bits>(x, done, to, total, of_tops);
    }
    if (done < w.group) turn_group<bits>(x + done, w.group - done, to + done, total, of_tops);
    // What a flipped top stands for in its code: half the range; for 6 bits, whose sixteenth has three tops, 2 + 8 + 32.
    sums[group] = total, centres[group] = (bits == 6 ? 42 : half) * of_tops - half * total;
  }
}

// A vector of weights: code k with those below it.
template <int bits, int k>
inline vf piece(vi word) {
  if constexpr (k + 1 < digits_of(bits)) word &= int32_t((1u << bits * (k + 1)) - 1);
  return __builtin_convertvector(word, vf);
}

template <int bits, int rows, int apart, int k>
inline void add_pieces(const float* x, long row_floats, const char* codes, vf (&sums)[apart][rows][2]) {
  if constexpr (k < digits_of(bits)) {
    if constexpr (rows > 3) one_after_another();  // codes are loaded again: there is no register for them
    vf l = piece<bits, k>(load_words(codes)), r = piece<bits, k>(load_words(codes + W * 4));
    if constexpr (rows > 1) stay_in_registers(l, r);
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
      const vf value = splat(x[row * row_floats + k]);
      sums[k % apart][row][0] += value * l, sums[k % apart][row][1] += value * r;
      if constexpr (rows > 3) stay_in_turn(sums[k % apart][row][0], sums[k % apart][row][1]);
    }
    add_pieces<bits, rows, apart, k + 1>(x, row_floats, codes, sums);
  }
}

template <int bits, int rows>
void float_tile(const TrilemmaMatrix& w, const char* panel, const float* x, long row_floats, long ahead, float* out) {
  constexpr int apart = rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  const Turned<bits> t(w);
  Groups groups(w, panel);
  const long words = groups.f.words;
  const float* at = x;
  vf totals[rows][2] = {};
  for (long group = 0; group < t.groups; ++group) {
    groups.next(group);
    vf sums[apart][rows][2] = {};
    const char* codes = groups.at;
    for (long word = 0; word < words; ++word, codes += NR * 4, at += digits_of(bits)) {
      for (long byte = 0; byte < NR * 4; byte += 64) __builtin_prefetch(codes + ahead + byte);
      add_pieces<bits, rows, apart, 0>(at, row_floats, codes, sums);
    }
    groups.at = codes;
    for (int row = 0; row < rows; ++row) {
      const float* of_groups = x + row * row_floats + t.pieces + group;
      for (int side = 0; side < 2; ++side) {
        vf sum = sums[0][row][side];
        for (int part = 1; part < apart; ++part) sum += sums[part][row][side];
        sum += splat(of_groups[t.groups]);
        totals[row][side] += groups.scale[side] * sum;
        if (w.offset != CENTRED) totals[row][side] += groups.offset[side] * splat(of_groups[0]);
      }
    }
  }
  for (int row = 0; row < rows; ++row)
    for (int side = 0; side < 2; ++side) store(out + row * NR + side * W, totals[row][side]);
}

// -- activations as int8 ------------------------------------------------------------------------------------------------

template <int rows>
void integer_tile(const TrilemmaMatrix& w, const char* panel, const float* x, long row_floats, long ahead, float* out) {
  const Rounded r(w);
  Groups groups(w, panel);
  const long words = r.words, shares = w.group / w.activation_group;
  const float* at = x;
  vf totals[rows][2] = {};
  for (long group = 0, share = 0; group < groups.f.groups; ++group) {
    groups.next(group);
    vf of_group[rows][2] = {};
    for (const long end = share + shares; share < end; ++share) {
      vi sums[rows][2];
      for (int row = 0; row < rows; ++row) sums[row][0] = sums[row][1] = r.begin(x + row * row_floats, share);
      for (long word = 0; word < words; ++word, groups.at += NR * 4, at += WORD_FLOATS) {
        for (long byte = 0; byte < NR * 4; byte += 64) __builtin_prefetch(groups.at + ahead + byte);
        add_products<rows>(at, row_floats, groups.at, sums);
      }
      for (int row = 0; row < rows; ++row) {
        const vf scale = splat(r.scale(x + row * row_floats, share));
        for (int side = 0; side < 2; ++side) of_group[row][side] += scale * __builtin_convertvector(sums[row][side], vf);
      }
    }
    for (int row = 0; row < rows; ++row)
      for (int side = 0; side < 2; ++side) totals[row][side] += groups.scale[side] * of_group[row][side];
  }
  for (int row = 0; row < rows; ++row)
    for (int side = 0; side < 2; ++side) store(out + row * NR + side * W, totals[row][side]);
}

template <int rows>
void tile(const TrilemmaMatrix& w, const char* panel, const float* x, long row_floats, long ahead, float* out) {
  if (w.activation_group) return integer_tile<rows>(w, panel, x, row_floats, ahead, out);
  w.bits == 4 ? float_tile<4, rows>(w, panel, x, row_floats, ahead, out)
  : w.bits == 6 ? float_tile<6, rows>(w, panel, x, row_floats, ahead, out)
                : float_tile<8, rows>(w, panel, x, row_floats, ahead, out);
}

// Codes of a group or of what of it shares an activation's scale, in words of one column.
void pack_words(const TrilemmaMatrix& w, const uint8_t* codes, long count, char* to) {
  const long step = w.bits == 6 ? 16 : 32 / w.bits;
  for (long i = 0; i < count; i += step) {
    uint32_t word[3] = {};
    for (long k = 0; k < std::min(step, count - i); ++k) {
      const uint32_t code = codes[i + k];
      if (w.activation_group) word[0] |= code << 8 * byte_of(k);
      else if (w.bits != 6) word[0] |= code << w.bits * k;
      else if (k < 15) word[k / 5] |= code << 6 * (k % 5);
      else for (long j = 0; j < 3; ++j) word[j] |= (code >> 2 * j & 3) << 30;
    }
    for (long j = 0; j < (w.bits == 6 ? 3 : 1); ++j, to += NR * 4) {
      if (!w.activation_group) word[j] ^= TOP;
      std::memcpy(to, word + j, 4);
    }
  }
}

// Code i of what `pack_words` was given.
uint32_t code_at(const TrilemmaMatrix& w, const char* words, long i) {
  const auto word = [&](long index) {
    uint32_t found;
    std::memcpy(&found, words + index * NR * 4, 4);
    return w.activation_group ? found : found ^ TOP;
  };
  const uint32_t mask = (1u << w.bits) - 1;
  if (w.activation_group) return word(i / 4) >> 8 * byte_of(i % 4) & mask;
  if (w.bits != 6) return word(i / (32 / w.bits)) >> i % (32 / w.bits) * w.bits & mask;
  if (i % 16 < 15) return word(i / 16 * 3 + i % 16 / 5) >> i % 16 % 5 * 6 & mask;
  uint32_t code = 0;
  for (long j = 0; j < 3; ++j) code |= word(i / 16 * 3 + j) >> 30 << 2 * j;
  return code;
}

}  // namespace

long prepared_floats(const TrilemmaMatrix& w, long tokens) {
  if (!w.bits) return 0;
  if (is_expanded(w, tokens)) return w.depth;
  if (w.activation_group) return Rounded(w).floats();
  return w.bits == 4 ? Turned<4>(w).floats() : w.bits == 6 ? Turned<6>(w).floats() : Turned<8>(w).floats();
}

void prepare(const TrilemmaMatrix& w, long tokens, const float* x, float* to) {
  static thread_local std::vector<float> ordered;
  if (w.order) {
    ordered.resize(w.depth);
    for (long i = 0; i < w.depth; ++i) ordered[i] = x[w.order[i]];
    x = ordered.data();
  }
  if (is_expanded(w, tokens)) return void(std::memcpy(to, x, sizeof(float) * w.depth));
  if (w.activation_group) return Rounded(w).round(x, to);
  w.bits == 4 ? turn<4>(w, x, to) : w.bits == 6 ? turn<6>(w, x, to) : turn<8>(w, x, to);
}

void quantized_panel(const TrilemmaMatrix& w, const char* panel, long tokens, const float* x, long count, float* room, float* out) {
  if (is_expanded(w, tokens)) return expanded_product(w, panel, x, count, room, out);
  const long tiles = (count + MR - 1) / MR, row_floats = prepared_floats(w, tokens);
  for (long index = 0, first = 0, rows; index < tiles; ++index, first += rows) {
    rows = (count - first) / (tiles - index) + ((count - first) % (tiles - index) != 0);
    const float* at = x + first * row_floats;
    float* to = out + first * NR;
    // One tile is memory's to hold up; of several the first fetches the next panel while it computes.
    const long ahead = tiles == 1 ? FETCH_AHEAD : index == 0 ? w.stride : 0;
    switch (rows) {
#define TRILEMMA_ROWS(n) \
  case n: tile<n>(w, panel, at, row_floats, ahead, to); break;
      TRILEMMA_ROWS(1) TRILEMMA_ROWS(2) TRILEMMA_ROWS(3) TRILEMMA_ROWS(4) TRILEMMA_ROWS(5) TRILEMMA_ROWS(6)
#if TRILEMMA_WIDTH == 16
      TRILEMMA_ROWS(7) TRILEMMA_ROWS(8) TRILEMMA_ROWS(9) TRILEMMA_ROWS(10) TRILEMMA_ROWS(11) TRILEMMA_ROWS(12)
#endif
#undef TRILEMMA_ROWS
    }
  }
}

void pack_codes(const TrilemmaMatrix& w, const TrilemmaCodes& from) {
  const Layout f(w);
  const long supers = w.groups_of_super ? f.groups / w.groups_of_super : 0, share = w.activation_group ? w.activation_group : w.group;
  const auto copy = [](char* to, const void* array, long index, long bytes) {
    std::memcpy(to, static_cast<const char*>(array) + index * bytes, bytes);
  };
  for (long panel = 0; panel * NR < w.columns; ++panel) std::memset(static_cast<char*>(w.panels) + panel * w.stride, 0, f.panel_bytes);
#pragma omp parallel for
  for (long column = 0; column < w.columns; ++column) {
    char* const panel = static_cast<char*>(w.panels) + column / NR * w.stride;
    const long lane = column % NR;
    for (long super = 0; super < supers; ++super) {
      char* const at = panel + super * (f.super_header + w.groups_of_super * f.group_bytes);
      copy(at + lane * w.scale_bytes, from.scale, column * supers + super, w.scale_bytes);
      if (w.offset == MINIMUM) copy(at + NR * w.scale_bytes + lane * 2, from.offset, column * supers + super, 2);
    }
    for (long group = 0; group < f.groups; ++group) {
      char* const at = const_cast<char*>(f.group_at(w, panel, group));
      const long index = column * f.groups + group, offset_bytes = w.offset == ZERO || supers ? 1 : 2;
      copy(at + lane * f.scale_bytes, supers ? from.scale_codes : from.scale, index, f.scale_bytes);
      if (w.offset != CENTRED)
        copy(at + NR * f.scale_bytes + lane * offset_bytes, supers ? from.offset_codes : from.offset, index, offset_bytes);
      const uint8_t* codes = from.codes + column * w.depth + group * w.group;
      char* words = at + f.group_header + lane * 4;
      for (long i = 0; i < w.group; i += share, words += words_of(w.bits, share) * NR * 4) pack_words(w, codes + i, share, words);
    }
  }
}

void quantized_row(const TrilemmaMatrix& w, long row, float* to) {
  Groups groups(w, static_cast<const char*>(w.panels) + row / NR * w.stride);
  const long side = row % NR / W, lane = row % W, share = w.activation_group ? w.activation_group : w.group;
  for (long group = 0; group < groups.f.groups; ++group) {
    groups.next(group);
    const float scale = groups.scale[side][lane], offset = w.offset == CENTRED ? 0 : groups.offset[side][lane];
    for (long i = 0; i < w.group; ++i) {
      const char* words = groups.at + (row % NR) * 4 + i / share * words_of(w.bits, share) * NR * 4;
      const long place = group * w.group + i, code = long(code_at(w, words, i % share)) - (1 << (w.bits - 1));
      to[w.order ? w.order[place] : place] = scale * float(code) + offset;
    }
    groups.at += groups.f.words * NR * 4;
  }
}

}  // namespace trilemma
