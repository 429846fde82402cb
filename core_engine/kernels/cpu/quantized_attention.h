// Attention over quantized blocks. int8 codes are multiplied as they lie and scaled by key afterwards; int4 and int2 are
// unpacked a chunk and head at a time into a buffer of the thread. A query's own block is read in full precision.
#pragma once
#include "naive.h"
#include "kv_blocks.h"

namespace trilemma {

// A chunk of keys [from, from + count) of a row, all before the query's own block or all in it.
struct Chunk {
  long from, count;
  bool own;
};

// The chunk at `from` of keys that end at `to`.
template <int bits>
inline Chunk chunk_at(const QuantizedCache<bits>& cache, const Sequence& s, long from, long to) {
  const long own = cache.own(s.start);
  return {from, std::min<long>(CHUNK, (from < own ? std::min(own, to) : to) - from), from >= own};
}

template <int bits>
inline void widen_chunk(const QuantizedCache<bits>& cache, const Sequence& s, const Chunk& chunk, long kv_head, bool is_value, float* to) {
  chunk.own ? cache.widen_own(s, chunk.from, chunk.count, kv_head, is_value, to)
            : cache.widen_before(s, chunk.from, chunk.count, kv_head, is_value, to);
}

// Where codes of int8 tokens begin, and their scales by head, [kv_heads][CHUNK].
struct Int8Places {
  Places places;
  void find(const QuantizedCache<8>& cache, const Sequence& s, const Chunk& chunk) {
    places.count = chunk.count;
    const long size = cache.size(), a_token = cache.w.kv_size, a_block = cache.block_bytes();
    long block = chunk.from / size, inside = chunk.from % size;  // one division a chunk, as in Places
    for (long key = 0; key < chunk.count; ++key) {
      places.at[key] = s.blocks[block] * a_block + inside * a_token;
      if (++inside == size) inside = 0, ++block;
    }
  }
  void scales(const QuantizedCache<8>& cache, const Sequence& s, const Chunk& chunk, bool is_value, long kv_head, float* to) const {
    const long size = cache.size();
    for (long key = 0, some; key < chunk.count; key += some) {
      const long position = chunk.from + key, inside = position % size;
      some = std::min(size - inside, chunk.count - key);
      const uint8_t* block = cache.raw + s.blocks[position / size] * cache.block_bytes() + (is_value ? cache.keys.bytes : 0);
      widen_halves(block + cache.keys.scale_at + 2 * (kv_head * size + inside), some, to + key);
    }
  }
};

// Codes of int8 blocks as Feed reads them.
inline LayerCache<int8_t> codes_of(const QuantizedCache<8>& cache) {
  int8_t* at = reinterpret_cast<int8_t*>(cache.raw);
  return {at, at + cache.keys.bytes, cache.size(), cache.w.m.kv_heads, cache.w.m.head_dim};
}

// scores [heads][stride] of a chunk's keys. query [heads, dim].
template <int bits>
inline void score_chunk(const float* query, const QuantizedCache<bits>& cache, const Sequence& s, const Chunk& chunk, float* scores,
                        long stride, float* buffer, const Places& next) {
  const long dim = cache.w.m.head_dim, group = cache.w.group;
  if constexpr (bits == 8) {
    if (!chunk.own) {
      Int8Places at;
      at.find(cache, s, chunk);
      const LayerCache<int8_t> codes = codes_of(cache);
      Feed<int8_t> feed(codes, next);
      score_chunk(query, codes, at.places, group, scores, stride, feed);
      for (long kv_head = 0; kv_head < cache.w.m.kv_heads; ++kv_head) {
        at.scales(cache, s, chunk, false, kv_head, buffer);
        for (long head = kv_head * group; head < (kv_head + 1) * group; ++head)
          for (long key = 0; key < chunk.count; ++key) scores[head * stride + key] *= buffer[key];
      }
      return;
    }
  }
  Places places;
  places.count = chunk.count;
  for (long key = 0; key < chunk.count; ++key) places.at[key] = key * dim;
  for (long kv_head = 0; kv_head < cache.w.m.kv_heads; ++kv_head) {
    widen_chunk(cache, s, chunk, kv_head, false, buffer);
    by_group(group, [&](auto some, long skip) {
      const long head = kv_head * group + skip;
      for (long key = 0; key < chunk.count; key += 4)
        score_four<decltype(some)::value>(query + head * dim, static_cast<const float*>(buffer), places, key, 0, dim, scores + head * stride, stride);
    });
  }
}

// out [heads, dim] += weights [heads][stride] x a chunk's values. The weights are spoilt.
template <int bits>
inline void add_chunk(float* weights, long stride, const QuantizedCache<bits>& cache, const Sequence& s, const Chunk& chunk, float* out,
                      float* buffer, const Places& next) {
  const long dim = cache.w.m.head_dim, group = cache.w.group;
  if constexpr (bits == 8) {
    if (!chunk.own) {
      Int8Places at;
      at.find(cache, s, chunk);
      for (long kv_head = 0; kv_head < cache.w.m.kv_heads; ++kv_head) {
        at.scales(cache, s, chunk, true, kv_head, buffer);
        for (long head = kv_head * group; head < (kv_head + 1) * group; ++head)
          for (long key = 0; key < chunk.count; ++key) weights[head * stride + key] *= buffer[key];
      }
      const LayerCache<int8_t> codes = codes_of(cache);
      Feed<int8_t> feed(codes, next);
      add_chunk(weights, stride, codes, at.places, group, out, feed);
      return;
    }
  }
  Places places;
  places.count = chunk.count;
  for (long key = 0; key < chunk.count; ++key) places.at[key] = key * dim;
  const LayerCache<float> one{buffer, buffer, CHUNK, 1, dim};
  const Places none{};
  Feed<float> nothing(one, none);
  for (long kv_head = 0; kv_head < cache.w.m.kv_heads; ++kv_head) {
    widen_chunk(cache, s, chunk, kv_head, true, buffer);
    by_group(group, [&](auto some, long skip) {
      const long head = kv_head * group + skip;
      add_all_values<decltype(some)::value>(weights + head * stride, stride, static_cast<const float*>(buffer), places, 0, dim,
                                            out + head * dim, nothing, 0);
    });
  }
}

// As attend_token of decode.h, in plain order. buffer [CHUNK][dim].
template <int bits>
void attend_token(const float* query, const QuantizedCache<bits>& cache, const Range& range, const Range& following, float* scores,
                  float* out, float* maxima, float* totals, float* buffer) {
  const long dim = cache.w.m.head_dim, heads = cache.w.m.heads;
  for (long head = 0; head < heads; ++head) maxima[head] = -INFINITY, totals[head] = 0;
  std::memset(out, 0, sizeof(float) * heads * dim);
  for (long from = range.from, to; from < range.to; from = to) {
    const Chunk chunk = chunk_at(cache, *range.row, from, range.to);
    to = from + chunk.count;
    Int8Places next{};
    if constexpr (bits == 8) {
      const Range& after = to < range.to ? range : following;
      const long at = to < range.to ? to : following.from;
      if (after.row && at < after.to) {
        const Chunk coming = chunk_at(cache, *after.row, at, after.to);
        if (!coming.own) next.find(cache, *after.row, coming);
      }
    }
    score_chunk(query, cache, *range.row, chunk, scores, CHUNK, buffer, next.places);
    for (long head = 0; head < heads; ++head) {
      const float rescale = soften(scores + head * CHUNK, chunk.count, maxima[head], totals[head]);
      float* at = out + head * dim;
      if (rescale != 1.0f && from != range.from)
        for (long i = 0; i < dim; i += W) store(at + i, load(at + i) * splat(rescale));
    }
    add_chunk(scores, CHUNK, cache, *range.row, chunk, out, buffer, next.places);
  }
}

// The same with all scores stored: [heads][keys].
template <int bits>
void naive_scores(const QuantizedCache<bits>& cache, const Sequence& s, const float* query, float* scores, float* buffer) {
  const Places none{};
  for (long from = 0, keys = s.start + 1, to; from < keys; from = to) {
    const Chunk chunk = chunk_at(cache, s, from, keys);
    score_chunk(query, cache, s, chunk, scores + from, keys, buffer, none);
    to = from + chunk.count;
  }
}

template <int bits>
void naive_values(const QuantizedCache<bits>& cache, const Sequence& s, float* weights, float* out, float* buffer) {
  const Places none{};
  std::memset(out, 0, sizeof(float) * cache.w.query_size);
  for (long from = 0, keys = s.start + 1, to; from < keys; from = to) {
    const Chunk chunk = chunk_at(cache, s, from, keys);
    add_chunk(weights + from, keys, cache, s, chunk, out, buffer, none);
    to = from + chunk.count;
  }
}

// The keys that a tile reads: blocks before the own block of its last query as bytes, then the own blocks of all its
// queries. use(chunk) for each of either kind.
template <int bits, class Use>
inline void by_tile_chunks(const QuantizedCache<bits>& cache, const Tile& tile, long begin, long end, Use use) {
  const long first = std::max(begin, cache.own(tile.position(0))), last = cache.own(tile.end() - 1);
  for (long from = begin; from < last; from += CHUNK) use(Chunk{from, std::min<long>(CHUNK, last - from), false});
  for (long from = first; from < end; from += CHUNK) use(Chunk{from, std::min<long>(CHUNK, end - from), true});
}

// Keys [first, last) of a chunk are those that this query reads in the chunk's form, future ones among them.
template <int bits, class Use>
inline void by_lane(const QuantizedCache<bits>& cache, const Tile& tile, long panel, const Chunk& chunk, Use use) {
  for (long lane = 0; lane < NR; ++lane) {
    const long own = std::min(std::max(cache.own(tile.position(panel * NR + lane)) - chunk.from, 0l), chunk.count);
    chunk.own ? use(lane, own, chunk.count) : use(lane, 0l, own);
  }
}

template <int bits, class Query, class Result>
void attend_tile(const QuantizedCache<bits>& cache, const Tile& tile, const TileScratch& scratch, Query query, Result result) {
  const long dim = tile.dim, panels = tile.panels(), a_panel = dim * NR;
  lay_queries(tile, query, scratch.query);
  std::memset(scratch.out, 0, sizeof(float) * panels * a_panel);
  std::fill(scratch.maxima, scratch.maxima + panels * NR, HIDDEN);
  std::fill(scratch.totals, scratch.totals + panels * NR, 0.0f);
  by_tile_chunks(cache, tile, tile.begin(), tile.end(), [&](const Chunk& chunk) {
    widen_chunk(cache, tile.row, chunk, tile.kv_head, false, scratch.keys);
    widen_chunk(cache, tile.row, chunk, tile.kv_head, true, scratch.values);
    for (long panel = 0; panel < panels; ++panel) {
      score_panel(scratch.keys, scratch.query + panel * a_panel, chunk.count, dim, scratch.scores);
      by_lane(cache, tile, panel, chunk, [&](long lane, long first, long last) {
        for (long key = 0; key < first; ++key) scratch.scores[key * NR + lane] = HIDDEN;
        for (long key = last; key < chunk.count; ++key) scratch.scores[key * NR + lane] = HIDDEN;
      });
      mask_panel(tile, panel, chunk.from, chunk.count, scratch.scores);
      soften_panel(scratch.scores, chunk.count, dim, scratch.out + panel * a_panel, scratch.maxima + panel * NR, scratch.totals + panel * NR);
      weigh_panel(scratch.values, scratch.scores, chunk.count, dim, scratch.out + panel * a_panel);
    }
  });
  give_results(tile, scratch.out, scratch.totals, result);
}

template <int bits, class Query>
void naive_scores(const QuantizedCache<bits>& cache, const Tile& tile, const TileScratch& scratch, Query query, float* scores) {
  const long keys = tile.end_of_row();
  lay_queries(tile, query, scratch.query);
  by_tile_chunks(cache, tile, 0, keys, [&](const Chunk& chunk) {
    widen_chunk(cache, tile.row, chunk, tile.kv_head, false, scratch.keys);
    for (long panel = 0; panel < tile.panels(); ++panel) {
      float* to = scores + (panel * keys + chunk.from) * NR;
      score_panel(scratch.keys, scratch.query + panel * tile.dim * NR, chunk.count, tile.dim, scratch.scores);
      by_lane(cache, tile, panel, chunk, [&](long lane, long first, long last) {
        for (long key = first; key < last; ++key) to[key * NR + lane] = scratch.scores[key * NR + lane];
      });
    }
  });
}

template <int bits, class Result>
void naive_values(const QuantizedCache<bits>& cache, const Tile& tile, const TileScratch& scratch, const float* weights, Result result) {
  const long keys = tile.end_of_row(), a_panel = tile.dim * NR;
  std::memset(scratch.out, 0, sizeof(float) * tile.panels() * a_panel);
  std::fill(scratch.totals, scratch.totals + tile.panels() * NR, 1.0f);  // the weights are shares already
  by_tile_chunks(cache, tile, 0, keys, [&](const Chunk& chunk) {
    widen_chunk(cache, tile.row, chunk, tile.kv_head, true, scratch.values);
    for (long panel = 0; panel < tile.panels(); ++panel) {
      const float* from = weights + (panel * keys + chunk.from) * NR;
      std::memset(scratch.scores, 0, sizeof(float) * CHUNK * NR);
      by_lane(cache, tile, panel, chunk, [&](long lane, long first, long last) {
        for (long key = first; key < last; ++key) scratch.scores[key * NR + lane] = from[key * NR + lane];
      });
      weigh_panel(scratch.values, scratch.scores, chunk.count, tile.dim, scratch.out + panel * a_panel);
    }
  });
  give_results(tile, scratch.out, scratch.totals, result);
}

}  // namespace trilemma
