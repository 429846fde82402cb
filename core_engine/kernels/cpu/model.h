// What the caller hands over: addresses of packed weights, and of the rows of one step. Mirrored in native.py.
#pragma once
#include <cstdint>

extern "C" {
// A packed matrix [columns, depth]: panel p begins p * stride bytes from `panels`. bits 0: plain numbers (gemm.h), and only
// the first four say anything; else quantized.h. groups_of_super 0: scales are not nested. order null: codes are in the
// order of the inputs. activation_group 0: inputs are not rounded.
struct TrilemmaMatrix {
  void* panels;
  int64_t stride, columns, depth, bits, group, scale_bytes, offset, groups_of_super, signed_scales, activation_group;
  const int32_t* order;
};
// What a quantized matrix is packed from: codes [out, depth], all others [out, groups] or, nested, [out, supers] and codes.
struct TrilemmaCodes {
  const uint8_t* codes;
  const void* scale;            // float16 or float32
  const uint8_t* scale_codes;   // or int8, or null
  const void* offset;           // zeros uint8 or minima float16, or null
  const uint8_t* offset_codes;  // or null
};
// Norms and biases are plain. The biases of a product with parts (query, key and value; gate and up) lie part by part, each
// filled up to whole panels.
struct TrilemmaLayer {
  const void *input_norm, *post_norm;
  TrilemmaMatrix qkv[3], output, gate_up[2], down;
  const void *qkv_bias, *output_bias, *gate_up_bias, *down_bias, *query_norm, *key_norm;  // or null
  int64_t window;                                                                           // 0: sees all
};
struct TrilemmaModel {
  int64_t layers, hidden, heads, kv_heads, head_dim, inner, vocab;
  double epsilon, attention_factor;
  const float* inverse_frequencies;           // [head_dim / 2]
  const void* embedding;         // [vocab, hidden], or null where tokens are looked up in panels:
  TrilemmaMatrix lookup, head;   // lookup is the head itself where the two are tied
  const void* final_norm;
  const TrilemmaLayer* layer;
};
// One step. Token ids of all rows one after another; block tables likewise, row r's from table_starts[r].
struct TrilemmaBatch {
  int64_t rows, tokens, wanted;
  const int32_t *token_ids, *starts, *counts, *table_starts, *tables, *wanted_tokens;
  int64_t num_blocks, block_size;  // blocks of the cache, the padding block with them
  void* cache;                     // [layers][2][num_blocks][block_size][kv_heads][head_dim], or blocks of quantized.h
  float *workspace, *logits;       // logits [wanted, vocab]
  int32_t* best;                   // the lowest id of each row's largest logit goes here, or null
  int64_t threads;
  int64_t* kind_ns;  // time of each kind of operator is added here (step.h's order), or null
  int64_t one_call, fused, flash, kv_splits;  // kv_splits 0: as many as the threads need
  int64_t workspace_floats;                   // that there are; only trilemma_step looks at it
  int64_t kv_bits;                            // of an element of the cache; 0: as the weights; 8, 4, 2: quantized
  // Of quantized caches: keys in groups per token rather than channel, elements of a vector kept apart, blocks of a sequence
  // that stay as they are, the rows' slots, and the slots [slot][1 + sinks][layers][2][block_size][kv_heads][head_dim].
  int64_t kv_key_by_token, kv_outliers, kv_sinks;
  const int32_t* slots;
  float* open;
  float* hidden;  // of all tokens after the final norm, [tokens, hidden], go here; or null
};
}
