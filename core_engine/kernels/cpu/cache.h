// The paged KV cache of one layer, read in place: keys, then values, each [num_blocks][block_size][kv_heads][head_dim].
#pragma once
#include <algorithm>

#include "vec.h"

namespace trilemma {

constexpr int CHUNK = 32;  // keys scored at a time

struct Sequence {  // where one row reads: its blocks in order
  const int32_t* blocks;
  long start, count, first_token;  // context before the step; new tokens; place of the first in the flat batch
  long slot;                       // where its open block is kept, of formats that quantize full ones
};

template <class T>
struct LayerCache {
  T *keys, *values;
  long block_size, kv_heads, head_dim;
  long offset(const int32_t* blocks, long position) const {
    return (long(blocks[position / block_size]) * block_size + position % block_size) * kv_heads * head_dim;
  }
};

// Where keys [from, from + count) of a row begin, in elements. One division a chunk, not one a key.
struct Places {
  long at[CHUNK], count = 0;
  template <class T>
  void find(const LayerCache<T>& cache, const int32_t* blocks, long from, long keys) {
    count = keys;
    const long a_token = cache.kv_heads * cache.head_dim;
    long block = from / cache.block_size, inside = from % cache.block_size;
    for (long key = 0; key < keys; ++key) {
      at[key] = (long(blocks[block]) * cache.block_size + inside) * a_token;
      if (++inside == cache.block_size) inside = 0, ++block;
    }
  }
};

}  // namespace trilemma
