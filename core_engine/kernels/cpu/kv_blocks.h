// Blocks of int8, int4 or int2 as kv/block.py lays them out: written once when they are full, read in place. The tokens of
// a block that is not full yet lie in their row's slot as float32, new ones in the step's own buffer.
#pragma once
#include <cmath>

#include "work.h"

namespace trilemma {

constexpr int MOST_HEAD_DIM = 256;
constexpr float MOST_HALF = 65504.0f;

inline uint16_t to_half(float x) {
  x = std::min(std::max(x, -MOST_HALF), MOST_HALF);
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size >= 0x38800000u) return sign | (size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13;  // a normal half
  float small;
  std::memcpy(&small, &size, 4);
  small += 0.5f;  // rounds to a multiple of 2^-24, the least half
  std::memcpy(&bits, &small, 4);
  return sign | (bits - 0x3F000000u);
}
inline float from_half(uint16_t half) {
  const uint32_t bits = uint32_t(half & 0x7FFFu) << 13, sign = uint32_t(half & 0x8000u) << 16;
  float size;
  std::memcpy(&size, &bits, 4);
  size *= 5.192296858534828e33f;  // 2^112: the exponents' bias
  uint32_t whole;
  std::memcpy(&whole, &size, 4);
  whole |= sign;
  std::memcpy(&size, &whole, 4);
  return size;
}
inline void widen_halves(const uint8_t* from, long count, float* to) {
  for (long i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, from + 2 * i, 2);
    to[i] = from_half(half);
  }
}
inline void put_half(uint8_t* to, float x) {
  const uint16_t half = to_half(x);
  std::memcpy(to, &half, 2);
}

// Keys or values of a block of one layer: where its parts begin, in bytes.
template <int bits>
struct Side {
  static constexpr long parts = 8 / bits, levels = (1 << bits) - 1;
  static constexpr bool symmetric = bits == 8;
  long block_size, kv_heads, dim, outliers, per_channel, scale_at, minimum_at, index_at, outlier_at, bytes;
  Side(long block_size, long kv_heads, long dim, long outliers, bool per_channel)
      : block_size(block_size), kv_heads(kv_heads), dim(dim), outliers(outliers), per_channel(per_channel) {
    const long vectors = block_size * kv_heads, groups = kv_heads * (per_channel ? dim : block_size);
    scale_at = vectors * dim / parts, minimum_at = scale_at + 2 * groups;
    index_at = minimum_at + (symmetric ? 0 : 2 * groups), outlier_at = index_at + vectors * outliers;
    bytes = outlier_at + 2 * vectors * outliers;
  }
  long group_of(long kv_head) const { return kv_head * (per_channel ? dim : block_size); }

  // Tokens [inside, inside + count) of a block under one KV head, as float32 [count][dim].
  void widen(const uint8_t* block, long inside, long count, long kv_head, float* to) const {
    float scales[MOST_HEAD_DIM], minima[MOST_HEAD_DIM];
    const uint8_t *scale = block + scale_at + 2 * group_of(kv_head), *minimum = block + minimum_at + 2 * group_of(kv_head);
    if (per_channel) widen_halves(scale, dim, scales), widen_halves(minimum, dim, minima);
    for (long token = inside; token < inside + count; ++token, to += dim) {
      const uint8_t* codes = block + (token * kv_heads + kv_head) * dim / parts;
      if (per_channel) {
        unpack(codes, to, [&](long i, float code) { return code * scales[i] + minima[i]; });
      } else {
        float s, low = 0;
        widen_halves(scale + 2 * token, 1, &s);
        if (!symmetric) widen_halves(minimum + 2 * token, 1, &low);
        unpack(codes, to, [&](long, float code) { return code * s + low; });
      }
      for (long k = 0; k < outliers; ++k) {
        const long at = (token * kv_heads + kv_head) * outliers + k;
        widen_halves(block + outlier_at + 2 * at, 1, to + block[index_at + at]);
      }
    }
  }

  // row(token) [kv_heads * dim] are the tokens of a whole block.
  template <class Row>
  void quantize(Row row, uint8_t* block) const {
    for (long kv_head = 0; kv_head < kv_heads; ++kv_head) {
      if constexpr (symmetric) {
        for (long token = 0; token < block_size; ++token) quantize_symmetric(row(token) + kv_head * dim, token, kv_head, block);
      } else if (per_channel) {
        for (long token = 0; token < block_size; ++token) std::memset(codes_of(block, token, kv_head), 0, dim / parts);
        quantize_groups(row, kv_head, block, 0, block_size);
      } else {
        for (long token = 0; token < block_size; ++token) {
          std::memset(codes_of(block, token, kv_head), 0, dim / parts);
          quantize_groups(row, kv_head, block, token, token + 1);
        }
      }
    }
  }

 private:
  uint8_t* codes_of(uint8_t* block, long token, long kv_head) const { return block + (token * kv_heads + kv_head) * dim / parts; }

  template <class Value>
  void unpack(const uint8_t* __restrict codes, float* __restrict to, Value value) const {
    const long part = dim / parts;
    if constexpr (symmetric) {
      const int8_t* signs = reinterpret_cast<const int8_t*>(codes);
      for (long i = 0; i < dim; ++i) to[i] = value(i, float(signs[i]));
    } else {
      for (long p = 0; p < parts; ++p)
        for (long i = 0; i < part; ++i) to[p * part + i] = value(p * part + i, float(codes[i] >> (p * bits) & levels));
    }
  }

  void quantize_symmetric(const float* x, long token, long kv_head, uint8_t* block) const {
    float most = 0;
    for (long i = 0; i < dim; ++i) most = std::max(most, std::fabs(x[i]));
    uint8_t* at = block + scale_at + 2 * (group_of(kv_head) + token);
    put_half(at, most / 127.0f);
    float scale;
    widen_halves(at, 1, &scale);
    int8_t* codes = reinterpret_cast<int8_t*>(codes_of(block, token, kv_head));
    for (long i = 0; i < dim; ++i)
      codes[i] = scale > 0 ? int8_t(std::min(127.0f, std::max(-127.0f, std::nearbyint(x[i] / scale)))) : 0;
  }

  // The groups of tokens [first, last) under one head: all its channels, or one token's own.
  template <class Row>
  void quantize_groups(Row row, long kv_head, uint8_t* block, long first, long last) const {
    float low[MOST_HEAD_DIM], high[MOST_HEAD_DIM];
    if (outliers) keep_apart(row, kv_head, block, first, last);
    std::fill(low, low + dim, INFINITY), std::fill(high, high + dim, -INFINITY);
    for (long token = first; token < last; ++token) {
      const float* x = row(token) + kv_head * dim;
      for (long i = 0; i < dim; ++i)
        if (!outliers || !is_apart(block, token, kv_head, i)) low[i] = std::min(low[i], x[i]), high[i] = std::max(high[i], x[i]);
    }
    if (!per_channel) low[0] = *std::min_element(low, low + dim), high[0] = *std::max_element(high, high + dim);
    float scale[MOST_HEAD_DIM], minimum[MOST_HEAD_DIM];
    for (long i = 0; i < (per_channel ? dim : 1); ++i) {
      const bool some = low[i] <= high[i];
      const long group = group_of(kv_head) + (per_channel ? i : first);
      put_half(block + minimum_at + 2 * group, some ? low[i] : 0.0f);
      put_half(block + scale_at + 2 * group, some ? (high[i] - low[i]) / float(levels) : 0.0f);
      widen_halves(block + minimum_at + 2 * group, 1, minimum + i), widen_halves(block + scale_at + 2 * group, 1, scale + i);
    }
    for (long token = first; token < last; ++token) {
      const float* x = row(token) + kv_head * dim;
      uint8_t* codes = codes_of(block, token, kv_head);
      for (long i = 0; i < dim; ++i) {
        const long g = per_channel ? i : 0;
        const float code = scale[g] > 0 ? std::nearbyint((x[i] - minimum[g]) / scale[g]) : 0.0f;
        codes[i % (dim / parts)] |= uint8_t(std::min(float(levels), std::max(0.0f, code))) << (i / (dim / parts) * bits);
      }
    }
  }

  bool is_apart(const uint8_t* block, long token, long kv_head, long i) const {
    const uint8_t* index = block + index_at + (token * kv_heads + kv_head) * outliers;
    return std::find(index, index + outliers, uint8_t(i)) != index + outliers;
  }

  // The elements farthest from the mean of their group, of equals the first.
  template <class Row>
  void keep_apart(Row row, long kv_head, uint8_t* block, long first, long last) const {
    float mean[MOST_HEAD_DIM] = {}, far[MOST_HEAD_DIM];
    for (long token = first; token < last; ++token)
      for (long i = 0; i < dim; ++i) mean[per_channel ? i : 0] += row(token)[kv_head * dim + i];
    for (long i = 0; i < dim; ++i) mean[i] /= float(per_channel ? last - first : dim);
    for (long token = first; token < last; ++token) {
      const float* x = row(token) + kv_head * dim;
      for (long i = 0; i < dim; ++i) far[i] = std::fabs(x[i] - mean[per_channel ? i : 0]);
      for (long k = 0; k < outliers; ++k) {
        const long found = std::max_element(far, far + dim) - far, at = (token * kv_heads + kv_head) * outliers + k;
        block[index_at + at] = uint8_t(found);
        put_half(block + outlier_at + 2 * at, x[found]);
        far[found] = -1.0f;
      }
    }
  }
};

// One layer of the cache.
template <int bits>
struct QuantizedCache {
  const Work& w;
  Side<bits> keys, values;
  uint8_t* raw;  // [num_blocks][block_bytes]
  long layer, sinks;
  QuantizedCache(const Work& work, long layer)
      : w(work), keys(work.b.block_size, work.m.kv_heads, work.m.head_dim, work.b.kv_outliers, bits < 8 && !work.b.kv_key_by_token),
        values(work.b.block_size, work.m.kv_heads, work.m.head_dim, work.b.kv_outliers, false), layer(layer), sinks(work.b.kv_sinks) {
    raw = static_cast<uint8_t*>(work.b.cache) + layer * work.b.num_blocks * block_bytes();
  }
  long block_bytes() const { return keys.bytes + values.bytes; }
  long size() const { return w.b.block_size; }
  // The first token of the block of a position: keys before it are read as bytes.
  long own(long position) const { return position / size() * size(); }

  // A block of a row's slot in full precision: copy 0 is the open one, then the sinks. [block_size][kv_size]
  float* open(const Sequence& s, long copy, bool is_value) const {
    return w.b.open + (((s.slot * (1 + sinks) + copy) * w.m.layers + layer) * 2 + is_value) * size() * w.kv_size;
  }
  // The key or value of a position of the row's own blocks, as computed. A single token's are in the slot, its own too.
  const float* exact(const Sequence& s, long position, bool is_value) const {
    if (position < s.start || s.count == 1) return open(s, 0, is_value) + position % size() * w.kv_size;
    return w.qkv + (s.first_token + position - s.start) * w.width + (is_value ? w.value_at : w.key_at);
  }

  // Keys [from, from + count) of one head as float32 [count][dim]: blocks before a query's own, or its own.
  void widen_before(const Sequence& s, long from, long count, long kv_head, bool is_value, float* to) const {
    const long dim = w.m.head_dim;
    for (long key = from, some; key < from + count; key += some, to += some * dim) {
      const long inside = key % size(), place = key / size();
      some = std::min(size() - inside, from + count - key);
      if (place < sinks) {
        for (long i = 0; i < some; ++i)
          std::memcpy(to + i * dim, open(s, 1 + place, is_value) + (inside + i) * w.kv_size + kv_head * dim, sizeof(float) * dim);
        continue;
      }
      const uint8_t* block = raw + s.blocks[place] * block_bytes();
      (is_value ? values : keys).widen(block + (is_value ? keys.bytes : 0), inside, some, kv_head, to);
    }
  }
  void widen_own(const Sequence& s, long from, long count, long kv_head, bool is_value, float* to) const {
    const long dim = w.m.head_dim;
    for (long key = 0; key < count; ++key) std::memcpy(to + key * dim, exact(s, from + key, is_value) + kv_head * dim, sizeof(float) * dim);
  }

  // New tokens [from, to) of a row, all of one block, into its slot; the block's bytes when they fill it.
  void write(const Sequence& s, long from, long to) const {
    const long begin = own(s.start + from), place = begin / size(), end = s.start + s.count;
    const bool full = s.start + to == begin + size();
    if (s.count == 1 || end < begin + size()) {
      for (long i = from; i < to; ++i)
        for (int side = 0; side < 2; ++side) put_open(s, i, 0, side);
    }
    if (!full) return;
    for (int side = 0; side < 2; ++side) {
      const auto row = [&](long token) { return exact(s, begin + token, side); };
      if (place < sinks) {
        for (long token = 0; token < size(); ++token)
          std::memcpy(open(s, 1 + place, side) + token * w.kv_size, row(token), sizeof(float) * w.kv_size);
      } else {
        (side ? values : keys).quantize(row, raw + s.blocks[place] * block_bytes() + (side ? keys.bytes : 0));
      }
    }
  }

 private:
  void put_open(const Sequence& s, long index, long copy, bool is_value) const {
    const float* from = w.qkv + (s.first_token + index) * w.width + (is_value ? w.value_at : w.key_at);
    std::memcpy(open(s, copy, is_value) + (s.start + index) % size() * w.kv_size, from, sizeof(float) * w.kv_size);
  }
};

}  // namespace trilemma
