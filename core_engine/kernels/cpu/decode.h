// Attention of one new token: its queries of all heads over a range of its keys. Split-KV (FlashDecoding) gives ranges to
// several threads and merges them afterwards.
#pragma once
#include <cmath>
#include <type_traits>

#include "cache.h"

namespace trilemma {

constexpr int MOST_HEADS = 6;  // query heads at a time: their sums have to stay in 16 registers

// Fetches the keys and values at `next` a few lines at a time, so that memory is read during the arithmetic, evenly: a burst
// of requests would make the processor wait for the first of them. Into the second-level cache: the first is too small.
template <class T>
class Feed {
 public:
  Feed(const LayerCache<T>& cache, const Places& next)
      : cache_(cache), next_(next), row_(cache.kv_heads * cache.head_dim), lines_((row_ * long(sizeof(T)) + 63) / 64) {
    if (next_.count) begin(cache_.keys);
  }
  // Lines for each of `calls` calls, when as many calls follow elsewhere.
  long share(long calls) const { return calls ? (next_.count * lines_ + calls - 1) / calls : 0; }
  void give(long lines) {
    for (; lines > 0 && at_ < end_; --lines) {
      __builtin_prefetch(at_, 0, 2);
      if ((at_ += 64) >= end_) step();
    }
  }

 private:
  const LayerCache<T>& cache_;
  const Places& next_;
  const long row_, lines_;
  long key_ = 0;
  bool in_values_ = false;
  const char *at_ = nullptr, *end_ = nullptr;

  void begin(const T* side) {
    at_ = reinterpret_cast<const char*>(side + next_.at[key_]);
    end_ = at_ + row_ * sizeof(T);
  }
  void step() {
    if (!in_values_) return in_values_ = true, begin(cache_.values);
    in_values_ = false;
    if (++key_ < next_.count) begin(cache_.keys);
  }
};

// scores[g * stride + key] = query[g] . key, of the four keys at `places` from `key` on. query [group, head_dim] in the
// order that load_pair gives; `head` is where the KV head lies in a token.
template <int group, class T>
inline void score_four(const float* query, const T* keys, const Places& places, long key, long head, long dim, float* scores,
                       long stride) {
  constexpr int together = group <= 3 ? 4 : 2;
  vf sums[4][group] = {};
  const T* k[4];
  for (int j = 0; j < 4; ++j) k[j] = keys + places.at[std::min(key + j, places.count - 1)] + head;
#pragma GCC unroll 4
  for (int first = 0; first < 4; first += together) {
    long i = 0;
    for (; i + 2 * W <= dim; i += 2 * W)
#pragma GCC unroll 4
      for (int j = first; j < first + together; ++j) {
        vf left, right;
        load_pair(k[j] + i, left, right);
#pragma GCC unroll 8
        for (int g = 0; g < group; ++g) {
          sums[j][g] += load(query + g * dim + i) * left;
          sums[j][g] += load(query + g * dim + i + W) * right;
        }
      }
    if (i < dim)
      for (int j = first; j < first + together; ++j)
        for (int g = 0; g < group; ++g) sums[j][g] += load(query + g * dim + i) * load(k[j] + i);
  }
  float four[4];
  for (int g = 0; g < group; ++g) {
    float* to = scores + g * stride + key;
    if (key + 4 <= places.count) {
      sum_four(sums[0][g], sums[1][g], sums[2][g], sums[3][g], to);
    } else {
      sum_four(sums[0][g], sums[1][g], sums[2][g], sums[3][g], four);
      for (long j = 0; key + j < places.count; ++j) to[j] = four[j];
    }
  }
}

// out [group, head_dim] += weights x values, one pair of vectors from `column` on. Two keys have sums of their own where
// registers allow it: one chain of additions a key would be all latency.
template <int group, class T>
inline void add_values(const float* weights, long stride, const T* values, const Places& places, long head, long dim,
                       long column, float* out, Feed<T>& feed, long lines) {
  constexpr int together = group <= 3 ? 2 : 1;
  vf part[together][group][2] = {};
  const auto add = [&](long key, vf(&to)[group][2]) {
    vf left, right;
    load_pair(values + places.at[key] + head + column, left, right);
#pragma GCC unroll 8
    for (int g = 0; g < group; ++g) {
      const vf weight = splat(weights[g * stride + key]);
      to[g][0] += weight * left, to[g][1] += weight * right;
    }
    one_after_another();
  };
  long key = 0;
  for (; key + together <= places.count; key += together) {
    feed.give(lines);
#pragma GCC unroll 2
    for (int j = 0; j < together; ++j) add(key + j, part[j]);
  }
  if (key < places.count) add(key, part[0]);
  for (int g = 0; g < group; ++g)
    for (int v = 0; v < 2; ++v) {
      float* to = out + g * dim + column + v * W;
      vf total = part[0][g][v];
      if constexpr (together == 2) total += part[1][g][v];
      store(to, load(to) + total);
    }
}

// The last vector of a head size that is no multiple of two.
template <int group, class T>
inline void add_rest(const float* weights, long stride, const T* values, const Places& places, long head, long dim, long column,
                     float* out) {
  for (long key = 0; key < places.count; ++key) {
    const vf value = load(values + places.at[key] + head + column);
    for (int g = 0; g < group; ++g)
      store(out + g * dim + column, load(out + g * dim + column) + splat(weights[g * stride + key]) * value);
  }
}

template <int group, class T>
inline void add_all_values(const float* weights, long stride, const T* values, const Places& places, long head, long dim,
                           float* out, Feed<T>& feed, long lines) {
  long column = 0;
  for (; column + 2 * W <= dim; column += 2 * W)
    add_values<group>(weights, stride, values, places, head, dim, column, out, feed, lines);
  if (column < dim) add_rest<group>(weights, stride, values, places, head, dim, column, out);
}

// Turn scores into weights in place, keeping the running maximum and sum of one query; returns what older results
// have to be multiplied with.
inline float soften(float* scores, long count, float& maximum, float& total) {
  vf high = splat(maximum);
  long i = 0;
  for (; i + W <= count; i += W) high = larger(high, load(scores + i));
  float highest = largest(high);
  for (; i < count; ++i) highest = scores[i] > highest ? scores[i] : highest;
  const float rescale = maximum == highest ? 1.0f : std::exp(maximum - highest);
  vf added = {};
  for (i = 0; i + W <= count; i += W) {
    const vf weight = exponential(load(scores + i) - splat(highest));
    store(scores + i, weight);
    added += weight;
  }
  float rest = 0;
  for (; i < count; ++i) rest += scores[i] = std::exp(scores[i] - highest);
  total = total * rescale + sum(added) + rest;
  maximum = highest;
  return rescale;
}

// use(n, first) for parts of a group of query heads: n, a constant, is at most MOST_HEADS.
template <class Use>
inline void by_group(long group, Use use) {
  const long parts = (group + MOST_HEADS - 1) / MOST_HEADS;
  for (long part = 0, first = 0, last; part < parts; ++part, first = last) {
    last = group * (part + 1) / parts;
    switch (last - first) {
#define TRILEMMA_GROUP(n) case n: use(std::integral_constant<int, n>{}, first); break;
      TRILEMMA_GROUP(1) TRILEMMA_GROUP(2) TRILEMMA_GROUP(3) TRILEMMA_GROUP(4) TRILEMMA_GROUP(5) TRILEMMA_GROUP(6)
#undef TRILEMMA_GROUP
    }
  }
}

// Queries or results [heads, dim] from plain order to that of load_pair, and back.
template <class T>
inline void turn(const float* from, long heads, long dim, float* to) {
  for (long head = 0; head < heads; ++head, from += dim, to += dim) {
    long i = 0;
    for (; i + 2 * W <= dim; i += 2 * W)
      for (long k = 0; k < 2 * W; ++k) to[i + turned<T>(k)] = from[i + k];
    if (i < dim) store(to + i, load(from + i));
  }
}
template <class T>
inline void turn_back(const float* from, long heads, long dim, float* to) {
  for (long head = 0; head < heads; ++head, from += dim, to += dim) {
    long i = 0;
    for (; i + 2 * W <= dim; i += 2 * W)
      for (long k = 0; k < 2 * W; ++k) to[i + k] = from[i + turned<T>(k)];
    if (i < dim) store(to + i, load(from + i));
  }
}

// Scores of all heads, key by key as they lie in memory.
template <class T>
inline void score_chunk(const float* query, const LayerCache<T>& cache, const Places& places, long group, float* scores, long stride,
                        Feed<T>& feed) {
  const long dim = cache.head_dim, lines = feed.share((places.count + 3) / 4);
  for (long key = 0; key < places.count; key += 4) {
    feed.give(lines);
    for (long kv_head = 0; kv_head < cache.kv_heads; ++kv_head)
      by_group(group, [&](auto some, long skip) {
        const long head = kv_head * group + skip;
        score_four<decltype(some)::value>(query + head * dim, cache.keys, places, key, kv_head * dim, dim, scores + head * stride, stride);
      });
  }
}

template <class T>
inline void add_chunk(const float* weights, long stride, const LayerCache<T>& cache, const Places& places, long group, float* out,
                      Feed<T>& feed) {
  const long dim = cache.head_dim, lines = feed.share(cache.kv_heads * (dim / (2 * W)) * places.count / 2);
  for (long kv_head = 0; kv_head < cache.kv_heads; ++kv_head)
    by_group(group, [&](auto some, long skip) {
      const long head = kv_head * group + skip;
      add_all_values<decltype(some)::value>(weights + head * stride, stride, cache.values, places, kv_head * dim, dim,
                                            out + head * dim, feed, lines);
    });
}

struct Range {  // keys [from, to) of a row; none when there is no row
  const Sequence* row;
  long from, to;
  template <class T>
  void find(Places& places, const LayerCache<T>& cache, long first) const {
    places.count = 0;
    if (row && first < to) places.find(cache, row->blocks, first, std::min<long>(CHUNK, to - first));
  }
};

// One token's queries [kv_heads * group, head_dim] (in load_pair's order) over a range of its keys, while the first keys of
// `following` are fetched. out, of the same shape and order, is not yet divided by the totals. maxima and totals
// [kv_heads * group], scores [kv_heads * group][CHUNK]. Without keys: nothing, at weight 0.
template <class T>
void attend_token(const float* query, const LayerCache<T>& cache, const Range& range, const Range& following, long group,
                  float* scores, float* out, float* maxima, float* totals) {
  const long dim = cache.head_dim, heads = cache.kv_heads * group;
  for (long head = 0; head < heads; ++head) maxima[head] = -INFINITY, totals[head] = 0;
  std::memset(out, 0, sizeof(float) * heads * dim);
  Places places, next;
  range.find(next, cache, range.from);
  for (long first = range.from; first < range.to; first += CHUNK) {
    places = next;
    first + CHUNK < range.to ? range.find(next, cache, first + CHUNK) : following.find(next, cache, following.from);
    Feed<T> feed(cache, next);
    score_chunk(query, cache, places, group, scores, CHUNK, feed);
    for (long head = 0; head < heads; ++head) {
      const float rescale = soften(scores + head * CHUNK, places.count, maxima[head], totals[head]);
      float* at = out + head * dim;
      if (rescale != 1.0f && first != range.from)
        for (long i = 0; i < dim; i += W) store(at + i, load(at + i) * splat(rescale));
    }
    add_chunk(scores, CHUNK, cache, places, group, out, feed);
  }
}

}  // namespace trilemma
