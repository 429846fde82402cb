// The rows of one step, how their attention is cut into pieces, and the buffers that all operators share.
#pragma once
#include <algorithm>
#include <atomic>
#include <vector>

#include "model.h"
#include "prefill.h"

namespace trilemma {

struct Thread {
  long number, of;
};

// Stored scores are panels [keys][NR] of each tile of several tokens, [heads][keys] of one token.
struct Item {  // a piece of attention: a tile of a row's queries under one KV head, or keys [from, to) of one query
  long row, kv_head, token, tokens, from, to, scores;  // scores: where its own begin, in floats (naive)
};

inline long whole_panels(long columns) { return (columns + NR - 1) / NR * NR; }

struct Work {
  const TrilemmaModel& m;
  const TrilemmaBatch& b;
  const long group, query_size, kv_size, key_at, value_at, width;
  std::vector<Sequence> sequences;
  std::vector<Item> items;
  long splits = 1, score_floats = 0, scratch_floats = 0;
  float *qkv, *attended, *scores, *scratch;
  float *partial_out, *partial_max, *partial_sum;

  Work(const TrilemmaModel& model, const TrilemmaBatch& batch)
      : m(model), b(batch), group(m.heads / m.kv_heads), query_size(m.heads * m.head_dim), kv_size(m.kv_heads * m.head_dim),
        key_at(whole_panels(query_size)), value_at(key_at + whole_panels(kv_size)), width(value_at + whole_panels(kv_size)) {
    lay_rows();
  }

  Tile tile_of(const Item& item, long window) const {
    return {sequences[item.row], item.kv_head, group, item.token, item.tokens, window, m.head_dim};
  }

 private:
  // The pieces of attention do not depend on the layer: a window only shortens them. The longest come first.
  void lay_rows() {
    long first = 0;
    for (long row = 0; row < b.rows; first += b.counts[row++])
      sequences.push_back({b.tables + b.table_starts[row], b.starts[row], b.counts[row], first, b.slots ? b.slots[row] : 0});
    const long singles = std::count(b.counts, b.counts + b.rows, 1), wanted = 4 * b.threads;
    splits = !b.flash ? 1 : b.kv_splits ? b.kv_splits : singles ? std::max(1l, (wanted + singles - 1) / singles) : 1;
    if (!b.kv_splits && singles >= wanted) splits = 1;
    for (long row = 0; row < b.rows; ++row) sequences[row].count == 1 ? lay_single(row) : lay_tiles(row);
  }

  void lay_single(long row) {
    const long keys = sequences[row].start + 1, most = b.kv_splits ? keys : (keys + CHUNK - 1) / CHUNK;
    const long pieces = std::min(splits, most);
    for (long piece = 0; piece < pieces; ++piece)
      items.push_back({row, 0, 0, 1, keys * piece / pieces, keys * (piece + 1) / pieces, score_floats});
    if (!b.flash) score_floats += m.heads * keys;
  }

  void lay_tiles(long row) {
    const long count = sequences[row].count;
    for (long token = (count - 1) / QUERY_TILE * QUERY_TILE; token >= 0; token -= QUERY_TILE)
      for (long kv_head = 0; kv_head < m.kv_heads; ++kv_head) {
        items.push_back({row, kv_head, token, std::min(QUERY_TILE, count - token), 0, 0, score_floats});
        const Tile tile = tile_of(items.back(), 0);
        if (!b.flash) score_floats += tile.panels() * tile.end_of_row() * NR;
      }
  }
};

}  // namespace trilemma
