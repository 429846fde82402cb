// Vectors of float as wide as the processor has, in GCC's vector extensions: the same source serves AVX-512, AVX2 and
// NEON. Weights and KV may be stored as bf16; arithmetic is float32 everywhere.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trilemma {

// Both may be set from outside, so that a machine without the instructions can test the code that other widths take.
#if !defined(TRILEMMA_WIDTH)
#if defined(__AVX512F__)
#define TRILEMMA_WIDTH 16
#elif defined(__AVX2__)
#define TRILEMMA_WIDTH 8
#else
#define TRILEMMA_WIDTH 4
#endif
#endif
#if !defined(TRILEMMA_PAIRS)  // multiply bf16 pairs: x is rounded to bf16 too
#if defined(__AVX512BF16__) && TRILEMMA_WIDTH == 16
#define TRILEMMA_PAIRS 1
#else
#define TRILEMMA_PAIRS 0
#endif
#endif

constexpr int W = TRILEMMA_WIDTH;
constexpr int NR = 2 * W;  // columns of a packed panel: two vectors, so that a tile of six rows fits the registers

typedef float vf __attribute__((vector_size(W * 4)));
typedef float vf_at __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef uint32_t vu_at __attribute__((vector_size(W * 4), aligned(2), may_alias));
typedef int8_t vb_at __attribute__((vector_size(W), aligned(1), may_alias));
typedef uint16_t vh_at __attribute__((vector_size(W * 2), aligned(2), may_alias));

struct bf16 {
  uint16_t bits;
};

// Less 0, not plus 0: -0.0 + 0.0 is 0.0, so that addition would stay beside every broadcast.
inline vf splat(float x) { return x - vf{}; }
inline vf load(const float* p) { return *reinterpret_cast<const vf_at*>(p); }
inline vf load(const bf16* p) {
  // The compiler's own conversion takes five instructions where the processor has one.
#if TRILEMMA_WIDTH == 16 && defined(__AVX512F__)
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16);
#elif TRILEMMA_WIDTH == 8 && defined(__AVX2__)
  return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16);
#else
  return (vf)(__builtin_convertvector(*reinterpret_cast<const vh_at*>(p), vu) << 16);
#endif
}

// 2 W numbers as two vectors. Of bf16, the first holds those at even places and the second those at odd ones: a shift and
// a mask of one load, no shuffle. `turned<T>(i)` says where number i of such a group is.
inline void load_pair(const float* p, vf& first, vf& second) { first = load(p), second = load(p + W); }
inline vu load_bits(const bf16* p) { return *reinterpret_cast<const vu_at*>(p); }
inline void load_pair(const bf16* p, vf& first, vf& second) {
  const vu both = load_bits(p);
  first = (vf)(both << 16), second = (vf)(both & 0xFFFF0000u);
}
// int8 codes as they are; their scale comes later.
inline vf load(const int8_t* p) {
#if TRILEMMA_WIDTH == 16 && defined(__AVX512F__)
  return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
#elif TRILEMMA_WIDTH == 8 && defined(__AVX2__)
  return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
#else
  return __builtin_convertvector(*reinterpret_cast<const vb_at*>(p), vf);
#endif
}
inline void load_pair(const int8_t* p, vf& first, vf& second) { first = load(p), second = load(p + W); }
template <class T>
constexpr long turned(long i) { return sizeof(T) != 2 ? i : i % 2 * W + i / 2; }

inline void store(float* p, vf x) { *reinterpret_cast<vf_at*>(p) = x; }
// Round to nearest even, as torch does; no value here is a NaN that has to stay one.
inline void store(bf16* p, vf x) {
  const vu bits = (vu)x;
  const vu rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  *reinterpret_cast<vh_at*>(p) = __builtin_convertvector(rounded, vh_at);
}
// Keeps the compiler from loading a weight again for every row: loads, not arithmetic, would be the limit then.
// A vector wider than the processor's is several registers, which no asm operand can be.
inline void stay_in_registers(vf& a, vf& b) {
#if defined(__AVX512F__) || (defined(__AVX__) && TRILEMMA_WIDTH <= 8) || (defined(__x86_64__) && TRILEMMA_WIDTH <= 4)
  asm("" : "+v"(a), "+v"(b));
#elif defined(__aarch64__) && TRILEMMA_WIDTH <= 4
  asm("" : "+w"(a), "+w"(b));
#endif
}
#if TRILEMMA_PAIRS
// sum + x's pair * w's pair, lane by lane.
inline vu splat_pair(const bf16* x) {
  uint32_t both;
  std::memcpy(&both, x, 4);
  return both - vu{};
}
inline vf add_pairs(vf sum, vu x, vu w) {
#if TRILEMMA_WIDTH == 16 && defined(__AVX512BF16__)
  return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
#else
  return sum + (vf)(x << 16) * (vf)(w << 16) + (vf)(x & 0xFFFF0000u) * (vf)(w & 0xFFFF0000u);
#endif
}
#endif

// The same, and nothing of the rows that follow is begun before: sixteen registers hold a tile with one temporary.
inline void stay_in_turn(vf& a, vf& b) {
#if defined(__AVX512F__) || (defined(__AVX__) && TRILEMMA_WIDTH <= 8) || (defined(__x86_64__) && TRILEMMA_WIDTH <= 4)
  asm volatile("" : "+v"(a), "+v"(b));
#elif defined(__aarch64__) && TRILEMMA_WIDTH <= 4
  asm volatile("" : "+w"(a), "+w"(b));
#endif
}

// What follows is not begun early: the compiler would fill the registers with it and put sums on the stack.
inline void one_after_another() { asm volatile("" ::: "memory"); }

inline bf16 to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return {uint16_t((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}
inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  const uint32_t bits = uint32_t(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// All lanes as one, by halves.
template <class Join>
inline float across(vf x, Join join) {
#if TRILEMMA_WIDTH == 16
  typedef float v8 __attribute__((vector_size(32)));
  const v8 half = join(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7), __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#else
  const vf half = x;
#endif
#if TRILEMMA_WIDTH == 4
  const auto quarter = half;
#else
  const auto quarter = join(__builtin_shufflevector(half, half, 0, 1, 2, 3), __builtin_shufflevector(half, half, 4, 5, 6, 7));
#endif
  const auto pair = join(quarter, __builtin_shufflevector(quarter, quarter, 2, 3, 0, 1));
  const auto one = join(pair, __builtin_shufflevector(pair, pair, 1, 0, 3, 2));
  return one[0];
}
inline float sum(vf x) { return across(x, [](auto a, auto b) { return a + b; }); }
inline float largest(vf x) { return across(x, [](auto a, auto b) { return a > b ? a : b; }); }

// The sums of four vectors, side by side.
inline void sum_four(vf a, vf b, vf c, vf d, float* to) {
#if TRILEMMA_WIDTH == 8 && defined(__AVX2__)
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
#else
  to[0] = sum(a), to[1] = sum(b), to[2] = sum(c), to[3] = sum(d);
#endif
}

inline vf larger(vf a, vf b) { return a > b ? a : b; }
inline vf smaller(vf a, vf b) { return a < b ? a : b; }

// e^x to about 2 ulp: x = n ln 2 + r, a polynomial in r (Cephes' expf), n put into the exponent.
inline vf exponential(vf x) {
  x = larger(smaller(x, splat(88.0f)), splat(-87.3f));
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const vf shifted = x * splat(1.44269504088896341f) + magic;
  const vi n = (vi)shifted - (vi)magic;
  const vf whole = shifted - magic;
  const vf r = (x - whole * splat(0.693359375f)) - whole * splat(-2.12194440e-4f);
  vf y = splat(1.9875691500e-4f);
  y = y * r + splat(1.3981999507e-3f);
  y = y * r + splat(8.3334519073e-3f);
  y = y * r + splat(4.1665795894e-2f);
  y = y * r + splat(1.6666665459e-1f);
  y = y * r + splat(5.0000001201e-1f);
  y = y * (r * r) + r + splat(1.0f);
  return (vf)((vi)y + (n << 23));
}

}  // namespace trilemma
