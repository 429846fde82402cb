// Attention of several new tokens of a row: a tile of queries against chunks of keys, as products with register tiles.
// Queries are the lanes: scores are [key][query], so that maximum, exponential and sum of a query need no sum across
// lanes, and keys and values are read as they lie, without a transposition.
#pragma once
#include "cache.h"
#include "gemm.h"

namespace trilemma {

constexpr long QUERY_TILE = 32;         // new tokens whose queries share one widened chunk of keys
constexpr float HIDDEN = -1e30f;        // score of a key that a query may not see; finite, or inf - inf would come up

// The queries of tokens [token, token + tokens) of a row under one KV head, in panels of NR: query q = token * group + g.
struct Tile {
  const Sequence& row;
  long kv_head, group, token, tokens, window, dim;
  long queries() const { return tokens * group; }
  long panels() const { return (queries() + NR - 1) / NR; }
  long position(long query) const { return row.start + token + std::min(query, queries() - 1) / group; }
  long begin() const { return window && position(0) + 1 > window ? position(0) + 1 - window : 0; }
  long end() const { return row.start + token + tokens; }
  long end_of_row() const { return row.start + row.count; }
  long last_seen(long panel) const { return position(panel * NR + NR - 1); }
};

// Buffers of one thread.
struct TileScratch {
  float *query, *out, *keys, *values, *scores, *maxima, *totals;
  static long most_panels(long group) { return (QUERY_TILE * group + NR - 1) / NR; }
  static long floats(long group, long dim) {
    return most_panels(group) * NR * (2 * dim + 2) + 2 * CHUNK * dim + CHUNK * NR;
  }
  TileScratch(float* at, long group, long dim) {
    auto take = [&](long count) { float* found = at; at += count; return found; };
    const long panels = most_panels(group);
    query = take(panels * NR * dim), out = take(panels * NR * dim), keys = take(CHUNK * dim), values = take(CHUNK * dim);
    scores = take(CHUNK * NR), maxima = take(panels * NR), totals = take(panels * NR);
  }
};

// query(t, g) [head_dim] into panels [dim][NR]; lanes beyond the last query are zeros.
template <class Query>
inline void lay_queries(const Tile& tile, Query query, float* panels) {
  std::memset(panels, 0, sizeof(float) * tile.panels() * tile.dim * NR);
  for (long q = 0; q < tile.queries(); ++q) {
    const float* from = query(tile.token + q / tile.group, q % tile.group);
    float* to = panels + q / NR * tile.dim * NR + q % NR;
    for (long i = 0; i < tile.dim; ++i) to[i * NR] = from[i];
  }
}

// Keys or values of a chunk as float32 [count][head_dim].
template <class T>
inline void widen(const T* from, const Places& places, long head, long dim, float* to) {
  for (long key = 0; key < places.count; ++key, to += dim) {
    const T* at = from + places.at[key] + head;
    for (long i = 0; i < dim; i += W) store(to + i, load(at + i));
  }
}

// scores [count][NR] of one panel of queries.
inline void score_panel(const float* keys, const float* queries, long count, long dim, float* scores) {
  panel_product(keys, dim, 1, count, queries, dim, [&](long key, vf left, vf right) {
    store(scores + key * NR, left), store(scores + key * NR + W, right);
  });
}

// Hide from every query the keys that it may not see; key 0 of scores is at position `from`.
inline void mask_panel(const Tile& tile, long panel, long from, long count, float* scores) {
  const long first = tile.position(panel * NR), last = tile.last_seen(panel);
  const bool future = from + count - 1 > first, past = tile.window && from <= last - tile.window;
  if (!future && !past) return;
  for (long lane = 0; lane < NR; ++lane) {
    const long seen = tile.position(panel * NR + lane) + 1 - from;  // keys [.., seen) may be seen
    for (long key = std::max(0l, seen); key < count; ++key) scores[key * NR + lane] = HIDDEN;
    if (tile.window)
      for (long key = 0; key < std::min(count, seen - tile.window); ++key) scores[key * NR + lane] = HIDDEN;
  }
}

// Scores to weights, lane by lane; out [dim][NR] is brought to the new maximum.
inline void soften_panel(float* scores, long count, long dim, float* out, float* maxima, float* totals) {
  vf high[2], total[2], scale[2];
  for (int side = 0; side < 2; ++side) {
    const vf old = load(maxima + side * W);
    high[side] = old;
    for (long key = 0; key < count; ++key) high[side] = larger(high[side], load(scores + key * NR + side * W));
    store(maxima + side * W, high[side]);
    scale[side] = exponential(old - high[side]);
    total[side] = load(totals + side * W) * scale[side];
    for (long key = 0; key < count; ++key) {
      const vf weight = exponential(load(scores + key * NR + side * W) - high[side]);
      store(scores + key * NR + side * W, weight);
      total[side] += weight;
    }
    store(totals + side * W, total[side]);
    for (long i = 0; i < dim; ++i) store(out + i * NR + side * W, load(out + i * NR + side * W) * scale[side]);
  }
}

// out [dim][NR] += values^T x weights.
inline void weigh_panel(const float* values, const float* weights, long count, long dim, float* out) {
  panel_product(values, 1, dim, dim, weights, count, [&](long i, vf left, vf right) {
    store(out + i * NR, load(out + i * NR) + left), store(out + i * NR + W, load(out + i * NR + W) + right);
  });
}

template <class Result>
inline void give_results(const Tile& tile, const float* out, const float* totals, Result result) {
  for (long q = 0; q < tile.queries(); ++q) {
    float* to = result(tile.token + q / tile.group, q % tile.group);
    const float* from = out + q / NR * tile.dim * NR + q % NR;
    const float share = 1.0f / totals[q];
    for (long i = 0; i < tile.dim; ++i) to[i] = from[i * NR] * share;
  }
}

// FlashAttention: the scores of one chunk are all that is ever stored.
template <class T, class Query, class Result>
void attend_tile(const LayerCache<T>& cache, const Tile& tile, const TileScratch& scratch, Query query, Result result) {
  const long dim = tile.dim, panels = tile.panels(), a_panel = dim * NR;
  lay_queries(tile, query, scratch.query);
  std::memset(scratch.out, 0, sizeof(float) * panels * a_panel);
  std::fill(scratch.maxima, scratch.maxima + panels * NR, HIDDEN);
  std::fill(scratch.totals, scratch.totals + panels * NR, 0.0f);
  Places places;
  for (long from = tile.begin(); from < tile.end(); from += CHUNK) {
    places.find(cache, tile.row.blocks, from, std::min<long>(CHUNK, tile.end() - from));
    widen(cache.keys, places, tile.kv_head * dim, dim, scratch.keys);
    widen(cache.values, places, tile.kv_head * dim, dim, scratch.values);
    for (long panel = 0; panel < panels; ++panel) {
      const long count = std::min(places.count, tile.last_seen(panel) + 1 - from);  // the rest is in its future
      if (count <= 0) continue;
      score_panel(scratch.keys, scratch.query + panel * a_panel, count, dim, scratch.scores);
      mask_panel(tile, panel, from, count, scratch.scores);
      soften_panel(scratch.scores, count, dim, scratch.out + panel * a_panel, scratch.maxima + panel * NR, scratch.totals + panel * NR);
      weigh_panel(scratch.values, scratch.scores, count, dim, scratch.out + panel * a_panel);
    }
  }
  give_results(tile, scratch.out, scratch.totals, result);
}

}  // namespace trilemma
