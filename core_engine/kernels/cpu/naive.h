// Attention that stores every score before it uses one (attention=naive): three operators over a queries x keys matrix in
// memory, future keys computed and then hidden. What FlashAttention saves is the difference to prefill.h and decode.h.
#pragma once
#include "decode.h"
#include "prefill.h"

namespace trilemma {

template <class T, class Query>
void naive_scores(const LayerCache<T>& cache, const Tile& tile, const TileScratch& scratch, Query query, float* scores) {
  const long keys = tile.end_of_row();
  lay_queries(tile, query, scratch.query);
  Places places;
  for (long from = 0; from < keys; from += CHUNK) {
    places.find(cache, tile.row.blocks, from, std::min<long>(CHUNK, keys - from));
    widen(cache.keys, places, tile.kv_head * tile.dim, tile.dim, scratch.keys);
    for (long panel = 0; panel < tile.panels(); ++panel)
      score_panel(scratch.keys, scratch.query + panel * tile.dim * NR, places.count, tile.dim, scores + (panel * keys + from) * NR);
  }
}

inline void naive_softmax(const Tile& tile, float* scores) {
  const long keys = tile.end_of_row();
  for (long panel = 0; panel < tile.panels(); ++panel) {
    float maxima[NR], totals[NR] = {}, *of_panel = scores + panel * keys * NR;
    std::fill(maxima, maxima + NR, HIDDEN);
    mask_panel(tile, panel, 0, keys, of_panel);
    soften_panel(of_panel, keys, 0, nullptr, maxima, totals);
    for (int side = 0; side < 2; ++side) {
      const vf share = splat(1.0f) / load(totals + side * W);
      for (float* at = of_panel + side * W; at < of_panel + keys * NR; at += NR) store(at, load(at) * share);
    }
  }
}

template <class T, class Result>
void naive_values(const LayerCache<T>& cache, const Tile& tile, const TileScratch& scratch, const float* weights, Result result) {
  const long keys = tile.end_of_row(), a_panel = tile.dim * NR;
  std::memset(scratch.out, 0, sizeof(float) * tile.panels() * a_panel);
  std::fill(scratch.totals, scratch.totals + tile.panels() * NR, 1.0f);  // the weights are shares already
  Places places;
  for (long from = 0; from < keys; from += CHUNK) {
    places.find(cache, tile.row.blocks, from, std::min<long>(CHUNK, keys - from));
    widen(cache.values, places, tile.kv_head * tile.dim, tile.dim, scratch.values);
    for (long panel = 0; panel < tile.panels(); ++panel)
      weigh_panel(scratch.values, weights + (panel * keys + from) * NR, places.count, tile.dim, scratch.out + panel * a_panel);
  }
  give_results(tile, scratch.out, scratch.totals, result);
}

// The same of one new token. use(places, from) for its keys, a chunk at a time.
template <class T, class Use>
inline void by_chunks(const LayerCache<T>& cache, const Sequence& row, long keys, Use use) {
  Places places;
  for (long from = 0; from < keys; from += CHUNK) {
    places.find(cache, row.blocks, from, std::min<long>(CHUNK, keys - from));
    use(places, from);
  }
}

template <class T>
void naive_scores(const LayerCache<T>& cache, const Sequence& row, const float* query, long group, float* scores) {
  const long keys = row.start + 1;
  const Places none{};
  by_chunks(cache, row, keys, [&](const Places& places, long from) {
    Feed<T> nothing(cache, none);
    score_chunk(query, cache, places, group, scores + from, keys, nothing);
  });
}

inline void naive_softmax(const Sequence& row, long heads, long window, float* scores) {
  const long keys = row.start + 1, hidden = window && keys > window ? keys - window : 0;
  for (long head = 0; head < heads; ++head, scores += keys) {
    float maximum = -INFINITY, total = 0;
    std::fill(scores, scores + hidden, 0.0f);
    soften(scores + hidden, keys - hidden, maximum, total);
    for (long key = hidden; key < keys; ++key) scores[key] *= 1.0f / total;
  }
}

// out in load_pair's order.
template <class T>
void naive_values(const LayerCache<T>& cache, const Sequence& row, const float* weights, long group, float* out) {
  const long keys = row.start + 1;
  std::memset(out, 0, sizeof(float) * cache.kv_heads * group * cache.head_dim);
  const Places none{};
  by_chunks(cache, row, keys, [&](const Places& places, long from) {
    Feed<T> nothing(cache, none);
    add_chunk(weights + from, keys, cache, places, group, out, nothing);
  });
}

}  // namespace trilemma
