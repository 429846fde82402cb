// Products of int8 with int8: an input is rounded with one scale for `activation_group` numbers of a token, weights are
// bytes with 128 added, and what that adds is taken off by the sum of the rounded inputs. 32 bits hold four depths of one
// column. Where the processor has an instruction for four products of bytes it is used, else AVX2's and AVX-512's for pairs
// of 16 bits: every second byte is one pair, and bytes lie such that the depths of a pair are neighbours. (Products of
// bytes into 16 bits, whose sums need three more instructions, reached 54 G products/s where these reach 67.)
#pragma once
#include "quantized.h"

#if !defined(TRILEMMA_WORDS)  // inputs as 16 bits; may be set to 0 from outside, as TRILEMMA_PAIRS
#if TRILEMMA_WIDTH == 8 && defined(__AVX2__) && !defined(__AVXVNNI__) && !(defined(__AVX512VNNI__) && defined(__AVX512VL__))
#define TRILEMMA_WORDS 1
#elif TRILEMMA_WIDTH == 16 && defined(__AVX512BW__) && !defined(__AVX512VNNI__)
#define TRILEMMA_WORDS 1
#else
#define TRILEMMA_WORDS 0
#endif
#endif

namespace trilemma {

inline vi splat_bits(const float* at) {
  int32_t bits;
  std::memcpy(&bits, at, 4);
  return bits - vi{};
}

constexpr float NOTHING = 1e-30f;  // magnitudes from here down count as zero: 127 / them would overflow
constexpr long WORD_FLOATS = TRILEMMA_WORDS ? 2 : 1;  // of an input's four numbers
constexpr long byte_of(long depth) { return TRILEMMA_WORDS ? depth / 2 + depth % 2 * 2 : depth; }  // in a word of weights

#if TRILEMMA_WORDS
// In place, one after another: the compiler would begin products before their sums are free and run out of registers.
inline void add_pairs_of_words(vi& sum, vi codes, vi x) {
  vi products;
  asm volatile("vpmaddwd %[x], %[codes], %[products]\n\tvpaddd %[products], %[sum], %[sum]"
               : [sum] "+v"(sum), [products] "=&v"(products) : [codes] "v"(codes), [x] "v"(x));
}
#else
// sum + the four products of codes with x.
inline vi add_dot(vi sum, vi codes, vi x) {
#if TRILEMMA_WIDTH == 16 && defined(__AVX512VNNI__)
  return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)x);
#elif TRILEMMA_WIDTH == 8 && defined(__AVX512VNNI__) && defined(__AVX512VL__)
  return (vi)_mm256_dpbusd_epi32((__m256i)sum, (__m256i)codes, (__m256i)x);
#elif TRILEMMA_WIDTH == 8 && defined(__AVXVNNI__)
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)codes, (__m256i)x);
#else
  for (int k = 0; k < 4; ++k) sum += (vi)((vu)codes << (24 - 8 * k) >> 24) * ((vi)((vu)x << (24 - 8 * k)) >> 24);
  return sum;
#endif
}
#endif

// Four depths of two vectors of columns with the rows of a tile.
template <int rows>
inline void add_products(const float* x, long row_floats, const char* codes, vi (&sums)[rows][2]) {
#if TRILEMMA_WORDS
  typedef uint16_t words __attribute__((vector_size(W * 4)));
#pragma GCC unroll 2
  for (int odd = 0; odd < 2; ++odd) {
    vi left = load_words(codes), right = load_words(codes + W * 4);
    if (odd) left = (vi)((words)left >> 8), right = (vi)((words)right >> 8);
    else left &= 0x00FF00FF, right &= 0x00FF00FF;
#pragma GCC unroll 16
    for (int row = 0; row < rows; ++row) {
      const vi value = splat_bits(x + row * row_floats + odd);
      add_pairs_of_words(sums[row][0], left, value), add_pairs_of_words(sums[row][1], right, value);
    }
  }
#else
  const vi left = load_words(codes), right = load_words(codes + W * 4);
#pragma GCC unroll 16
  for (int row = 0; row < rows; ++row) {
    const vi value = splat_bits(x + row * row_floats);
    sums[row][0] = add_dot(sums[row][0], left, value), sums[row][1] = add_dot(sums[row][1], right, value);
  }
#endif
}

// A token's input as integers: words of all shares of `activation_group` (in room for 16 bits, whatever they take), then the
// shares' scales and first sums.
struct Rounded {
  long share, shares, words;  // words of one share
  explicit Rounded(const TrilemmaMatrix& w)
      : share(w.activation_group), shares(w.depth / share), words(words_of(8, share)) {}
  long pieces() const { return 2 * shares * words; }
  long floats() const { return pieces() + 2 * shares; }
  float scale(const float* x, long index) const { return x[pieces() + index]; }
  vi begin(const float* x, long index) const { return splat_bits(x + pieces() + shares + index); }

  // Nearest integers, ties to even, of x * (127 / the largest magnitude), whose scale is that magnitude / 127.
  void round(const float* x, float* to) const {
    float *scales = to + pieces(), *begins = scales + shares;
    for (long index = 0; index < shares; ++index, x += share, to += words * WORD_FLOATS) {
      vf most{};
      for (long i = 0; i < share; i += W) {
        const vf here = some(x, i);
        most = larger(most, larger(here, -here));
      }
      const float magnitude = largest(most);
      scales[index] = magnitude / 127.0f;
      const vf by = splat(magnitude > NOTHING ? 127.0f / magnitude : 0.0f), magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds
      vi sums{};
      for (long i = 0; i < share; i += W) {
        const vi whole = __builtin_convertvector(some(x, i) * by + magic - magic, vi);
        sums += whole;
        const Narrow narrow = __builtin_convertvector(whole, Narrow);
        char* const at = reinterpret_cast<char*>(to) + i * WORD_FLOATS;
        if (i + W <= 4 * words) std::memcpy(at, &narrow, sizeof narrow);  // of a size that is known: one store
        else std::memcpy(at, &narrow, (4 * words - i) * WORD_FLOATS);
      }
      int32_t begin = 0;
      for (int lane = 0; lane < W; ++lane) begin -= 128 * sums[lane];
      std::memcpy(begins + index, &begin, 4);
    }
  }

 private:
#if TRILEMMA_WORDS
  typedef int16_t Narrow __attribute__((vector_size(W * 2)));
#else
  typedef int8_t Narrow __attribute__((vector_size(W)));
#endif
  // W numbers of a share from its number i, zeros beyond its end.
  vf some(const float* x, long i) const {
    if (i + W <= share) return load(x + i);
    float rest[W] = {};
    std::memcpy(rest, x + i, sizeof(float) * (share - i));
    return load(rest);
  }
};

}  // namespace trilemma
