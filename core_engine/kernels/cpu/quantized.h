// Products with weights of 4, 6 or 8 bits. A panel of NR columns is one stream: for each group of depths its scales (and
// zeros or minima), then its codes, 32 bits with those of one column: code 0 + code 1 * 2^bits + ... A mask leaves a code
// with those below it, which is taken off again by turning the input (`prepare`): exact but for float32's own rounding, at a
// mask, a conversion and a multiplication for every vector of weights, with no shift and nothing moved to another lane.
// Where activations are rounded to int8 too, codes are bytes of one column and the products integer (integer.h).
#pragma once
#include "gemm.h"
#include "model.h"

namespace trilemma {

enum Offset { CENTRED, ZERO, MINIMUM };  // W = scale * (code - half), scale * (code - zero), scale * code + minimum

constexpr long digits_of(long bits) { return (32 + bits - 1) / bits; }  // pieces of codes in 32 bits
// 96 bits hold 16 codes of 6: five in each 32, and of the sixteenth two bits in each.
constexpr long words_of(long bits, long codes) { return bits == 6 ? (codes + 15) / 16 * 3 : (codes * bits + 31) / 32; }

// Where things lie in a panel, in bytes.
struct Layout {
  long groups, words, scale_bytes, group_header, super_header, group_bytes, panel_bytes;
  explicit Layout(const TrilemmaMatrix& w) {
    groups = w.depth / w.group;
    const long share = w.activation_group ? w.activation_group : w.group;
    words = w.group / share * words_of(w.bits, share);
    scale_bytes = w.groups_of_super ? 1 : w.scale_bytes;
    const long minimum = w.groups_of_super ? 1 : 2;
    group_header = NR * (scale_bytes + (w.offset == ZERO ? 1 : w.offset == MINIMUM ? minimum : 0));
    super_header = w.groups_of_super ? NR * (w.scale_bytes + (w.offset == MINIMUM ? 2 : 0)) : 0;
    group_bytes = group_header + words * NR * 4;
    const long supers = w.groups_of_super ? (groups + w.groups_of_super - 1) / w.groups_of_super : 0;
    panel_bytes = groups * group_bytes + supers * super_header;
  }
  const char* group_at(const TrilemmaMatrix& w, const char* panel, long group) const {
    const long supers = w.groups_of_super ? group / w.groups_of_super + 1 : 0;
    return panel + group * group_bytes + supers * super_header;
  }
};

// Whether two matrices of one input read it in the same form.
inline bool same_form(const TrilemmaMatrix& a, const TrilemmaMatrix& b) {
  return a.bits == b.bits && a.group == b.group && a.activation_group == b.activation_group && a.order == b.order;
}

typedef int32_t vi_at __attribute__((vector_size(W * 4), aligned(1), may_alias));
inline vi load_words(const void* at) { return *static_cast<const vi_at*>(at); }

// Whether a product of so many tokens writes its weights as floats first (expand.h).
constexpr long EXPAND_FROM = 16;
inline bool is_expanded(const TrilemmaMatrix& w, long tokens) { return !w.activation_group && tokens >= EXPAND_FROM; }

// Floats of a token's input in the form that a product of `tokens` reads.
long prepared_floats(const TrilemmaMatrix& w, long tokens);
// x [depth] in that form.
void prepare(const TrilemmaMatrix& w, long tokens, const float* x, float* to);
// Codes and scales to panels; columns beyond the last are zeros.
void pack_codes(const TrilemmaMatrix& w, const TrilemmaCodes& from);
// out [count][NR] = prepared x [count][prepared_floats] times one panel, for `count` of the product's tokens. room [depth][NR]
// is written where the weights are expanded.
void quantized_panel(const TrilemmaMatrix& w, const char* panel, long tokens, const float* x, long count, float* room, float* out);
// Row `row` of W as float32 [depth].
void quantized_row(const TrilemmaMatrix& w, long row, float* to);

}  // namespace trilemma
