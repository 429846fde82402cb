// Products of many tokens: a panel's weights are written as float32 once and multiplied as such, where for few tokens the
// codes would be turned into floats anew for every tile of them.
#pragma once
#include "groups.h"

namespace trilemma {

template <int bits>
inline vf code_of(vi word, int shift) {
  return __builtin_convertvector((vi)(((vu)word ^ TOP) >> shift & ((1u << bits) - 1)), vf);
}

// Code k of the sixteen, or of the 32 / bits, that begin at `words`.
template <int bits>
inline vf code_at(const char* words, long k) {
  if (bits != 6) return code_of<bits>(load_words(words), int(k) * bits);
  if (k < 15) return code_of<6>(load_words(words + k / 5 * NR * 4), int(k % 5) * 6);
  vu code{};
  for (int j = 0; j < 3; ++j) code |= ((vu)load_words(words + j * NR * 4) ^ TOP) >> 30 << 2 * j;
  return __builtin_convertvector((vi)code, vf);
}

// The weights of a panel, [depth][NR].
template <int bits>
void expand(const TrilemmaMatrix& w, const char* panel, float* to) {
  constexpr long step = bits == 6 ? 16 : 32 / bits;
  Groups groups(w, panel);
  for (long group = 0; group < groups.f.groups; ++group) {
    groups.next(group);
    for (long i = 0; i < w.group; i += step, groups.at += words_of(bits, step) * NR * 4)
      for (long k = 0; k < std::min(step, w.group - i); ++k, to += NR)
        for (int side = 0; side < 2; ++side) {
          const vf code = code_at<bits>(groups.at + side * W * 4, k) - splat(float(1 << (bits - 1)));
          store(to + side * W, groups.scale[side] * code + groups.offset[side]);
        }
  }
}

// out [count][NR] = x [count][depth], in the matrix's order, times one panel. room [depth][NR].
inline void expanded_product(const TrilemmaMatrix& w, const char* panel, const float* x, long count, float* room, float* out) {
  w.bits == 4 ? expand<4>(w, panel, room) : w.bits == 6 ? expand<6>(w, panel, room) : expand<8>(w, panel, room);
  panel_product(x, w.depth, 1, count, room, w.depth, [out](long row, vf left, vf right) {
    store(out + row * NR, left), store(out + row * NR + W, right);
  });
}

}  // namespace trilemma
