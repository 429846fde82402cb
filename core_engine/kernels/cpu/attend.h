// The attention operators of a step over a cache of one format. Which format is found once a step; weights and products
// know nothing of it.
#pragma once
#include <memory>

#include "quantized_attention.h"

namespace trilemma {

enum class Part { WHOLE, SCORE, SOFTEN, WEIGH };  // all at once, or with stored scores one after another

class Attention {
 public:
  explicit Attention(const Work& work) : w(work) {}
  virtual ~Attention() = default;
  // New tokens [from, to) of a row.
  virtual void write(long layer, const Sequence& s, long from, long to) const = 0;
  // The new tokens from `from` on that have to be written together.
  virtual long together(const Sequence& s, long from) const = 0;

  // Each thread holds the piece after its own already, so that the first keys of that can be fetched.
  void attend(Part part, long layer, std::atomic<long>& counter, long window, Thread thread) const {
    float* own = w.scratch + thread.number * w.scratch_floats;
    long index = counter.fetch_add(1);
    for (long following; index < long(w.items.size()); index = following) {
      following = counter.fetch_add(1);
      w.sequences[w.items[index].row].count > 1 ? tile(part, layer, w.items[index], window, own)
                                                : single(part, layer, index, following, window, own);
    }
  }

  // Put the ranges of keys of each single query together: its items are neighbours.
  void merge(Thread thread) const {
    float* own = w.scratch + thread.number * w.scratch_floats;
    const long items = w.items.size();
    for (long first = 0, last, count = 0; first < items; first = last, ++count) {
      const Sequence& s = w.sequences[w.items[first].row];
      for (last = first + 1; last < items && w.items[last].row == w.items[first].row;) ++last;
      if (s.count > 1 || count % thread.of != thread.number) continue;
      for (long head = 0; head < w.m.heads; ++head) merge_head(head, first, last, own + head * w.m.head_dim);
      plain_order(own, w.attended + s.first_token * w.query_size);
    }
  }

 protected:
  const Work& w;
  virtual void tile(Part part, long layer, const Item& item, long window, float* own) const = 0;
  virtual void single(Part part, long layer, long index, long following, long window, float* own) const = 0;
  virtual void plain_order(const float* from, float* to) const = 0;  // all heads of one token

  // The keys of a single query's piece that a window leaves; none for other pieces or none at all.
  Range range_of(long index, long window) const {
    if (index >= long(w.items.size()) || w.sequences[w.items[index].row].count > 1) return {nullptr, 0, 0};
    const Item& item = w.items[index];
    const Sequence& s = w.sequences[item.row];
    const long begin = window && s.start + 1 > window ? s.start + 1 - window : 0;
    return {&s, std::max(begin, item.from), std::max(begin, item.to)};
  }

  template <class Cache>
  void tile_over(const Cache& cache, Part part, const Item& item, long window, float* own) const {
    const Tile tile = w.tile_of(item, window);
    const long first = tile.row.first_token, dim = w.m.head_dim, head = item.kv_head * w.group * dim;
    const TileScratch buffers(own, w.group, dim);
    const auto query = [&](long t, long g) { return w.qkv + (first + t) * w.width + head + g * dim; };
    const auto result = [&](long t, long g) { return w.attended + (first + t) * w.query_size + head + g * dim; };
    float* of_item = w.scores + item.scores;
    if (part == Part::WHOLE) attend_tile(cache, tile, buffers, query, result);
    if (part == Part::SCORE) naive_scores(cache, tile, buffers, query, of_item);
    if (part == Part::SOFTEN) naive_softmax(tile, of_item);
    if (part == Part::WEIGH) naive_values(cache, tile, buffers, of_item, result);
  }

  // What one new token's attention needs of a thread's buffer, and where partial results go instead.
  struct Single {
    const Sequence& s;
    float *query, *out, *maxima, *totals, *of_chunk, *buffer, *of_item, *to;
  };
  Single lay_single(long index, float* own) const {
    const Item& item = w.items[index];
    const Sequence& s = w.sequences[item.row];
    float *out = own + w.query_size, *maxima = out + w.query_size, *totals = maxima + w.m.heads, *of_chunk = totals + w.m.heads;
    float* buffer = of_chunk + CHUNK * w.m.heads;
    if (w.splits > 1)
      out = w.partial_out + index * w.query_size, maxima = w.partial_max + index * w.m.heads, totals = w.partial_sum + index * w.m.heads;
    return {s, own, out, maxima, totals, of_chunk, buffer, w.scores + item.scores, w.attended + s.first_token * w.query_size};
  }
  void divide(const Single& at) const {
    for (long i = 0; i < w.query_size; i += W) store(at.out + i, load(at.out + i) * splat(1.0f / at.totals[i / w.m.head_dim]));
  }

 private:
  void merge_head(long head, long first, long last, float* to) const {
    const long dim = w.m.head_dim;
    float highest = -INFINITY, total = 0;
    for (long i = first; i < last; ++i) highest = std::max(highest, w.partial_max[i * w.m.heads + head]);
    std::memset(to, 0, sizeof(float) * dim);
    for (long i = first; i < last; ++i) {
      const float share = std::exp(w.partial_max[i * w.m.heads + head] - highest);
      total += share * w.partial_sum[i * w.m.heads + head];
      for (long k = 0; k < dim; k += W) store(to + k, load(to + k) + splat(share) * load(w.partial_out + i * w.query_size + head * dim + k));
    }
    for (long k = 0; k < dim; k += W) store(to + k, load(to + k) * splat(1.0f / total));
  }
};

// Elements of type T: keys, then values, each [num_blocks][block_size][kv_heads][head_dim].
template <class T>
class PlainAttention : public Attention {
 public:
  using Attention::Attention;
  long together(const Sequence&, long) const override { return 1; }
  void write(long layer, const Sequence& s, long from, long to) const override {
    const LayerCache<T> kv = cache(layer);
    for (long index = from; index < to; ++index) {
      const float* at = w.qkv + (s.first_token + index) * w.width;
      const long place = kv.offset(s.blocks, s.start + index);
      for (long i = 0; i < w.kv_size; i += W) {
        store(kv.keys + place + i, load(at + w.key_at + i));
        store(kv.values + place + i, load(at + w.value_at + i));
      }
    }
  }

 protected:
  void tile(Part part, long layer, const Item& item, long window, float* own) const override {
    tile_over(cache(layer), part, item, window, own);
  }
  void plain_order(const float* from, float* to) const override { turn_back<T>(from, w.m.heads, w.m.head_dim, to); }
  void single(Part part, long layer, long index, long following, long window, float* own) const override {
    const Single at = lay_single(index, own);
    if (part == Part::SOFTEN) return naive_softmax(at.s, w.m.heads, window, at.of_item);
    if (part == Part::WEIGH) {
      naive_values(cache(layer), at.s, at.of_item, w.group, at.out);
      return plain_order(at.out, at.to);
    }
    turn<T>(w.qkv + at.s.first_token * w.width, w.m.heads, w.m.head_dim, at.query);
    if (part == Part::SCORE) return naive_scores(cache(layer), at.s, at.query, w.group, at.of_item);
    attend_token(at.query, cache(layer), range_of(index, window), range_of(following, window), w.group, at.of_chunk, at.out, at.maxima, at.totals);
    if (w.splits > 1) return;
    divide(at);
    plain_order(at.out, at.to);
  }

 private:
  LayerCache<T> cache(long layer) const {
    const long side = w.b.num_blocks * w.b.block_size * w.kv_size;
    T* at = static_cast<T*>(w.b.cache) + 2 * layer * side;
    return {at, at + side, w.b.block_size, w.m.kv_heads, w.m.head_dim};
  }
};

template <int bits>
class QuantizedAttention : public Attention {
 public:
  using Attention::Attention;
  // To the end of a block: whoever writes its last token has to have all.
  long together(const Sequence& s, long from) const override {
    return std::min(w.b.block_size - (s.start + from) % w.b.block_size, s.count - from);
  }
  void write(long layer, const Sequence& s, long from, long to) const override { QuantizedCache<bits>(w, layer).write(s, from, to); }

 protected:
  void tile(Part part, long layer, const Item& item, long window, float* own) const override {
    tile_over(QuantizedCache<bits>(w, layer), part, item, window, own);
  }
  void plain_order(const float* from, float* to) const override { std::memcpy(to, from, sizeof(float) * w.query_size); }
  void single(Part part, long layer, long index, long following, long window, float* own) const override {
    const Single at = lay_single(index, own);
    const QuantizedCache<bits> cache(w, layer);
    const float* query = w.qkv + at.s.first_token * w.width;
    if (part == Part::SOFTEN) return naive_softmax(at.s, w.m.heads, window, at.of_item);
    if (part == Part::WEIGH) return naive_values(cache, at.s, at.of_item, at.to, at.buffer);
    if (part == Part::SCORE) return naive_scores(cache, at.s, query, at.of_item, at.buffer);
    attend_token(query, cache, range_of(index, window), range_of(following, window), at.of_chunk, at.out, at.maxima, at.totals, at.buffer);
    if (w.splits > 1) return;
    divide(at);
    plain_order(at.out, at.to);
  }
};

// kv_bits 0: as the weights, whose format `is_bf16` says.
inline std::unique_ptr<Attention> attention_over(const Work& work, bool is_bf16) {
  switch (work.b.kv_bits) {
    case 8: return std::make_unique<QuantizedAttention<8>>(work);
    case 4: return std::make_unique<QuantizedAttention<4>>(work);
    case 2: return std::make_unique<QuantizedAttention<2>>(work);
    case 16: return std::make_unique<PlainAttention<bf16>>(work);
    case 32: return std::make_unique<PlainAttention<float>>(work);
  }
  if (is_bf16) return std::make_unique<PlainAttention<bf16>>(work);
  return std::make_unique<PlainAttention<float>>(work);
}

}  // namespace trilemma
