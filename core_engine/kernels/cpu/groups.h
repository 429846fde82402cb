// The scales and offsets of a quantized panel, group by group, as float32.
#pragma once
#include "quantized.h"

namespace trilemma {

constexpr uint32_t TOP = 0x80000000u;  // of each word it is stored flipped, so that the word as int32 is less by 2^31

// float16 to float32, small ones too: the exponent is put right by a multiplication.
inline float from_half(uint16_t bits) {
  const uint32_t magnitude = uint32_t(bits & 0x7FFF) << 13, sign = uint32_t(bits & 0x8000) << 16;
  float value;
  std::memcpy(&value, &magnitude, 4);
  value *= 0x1p112f;
  uint32_t signed_bits;
  std::memcpy(&signed_bits, &value, 4);
  signed_bits |= sign;
  std::memcpy(&value, &signed_bits, 4);
  return value;
}
inline vf load_half(const void* at) {
#if TRILEMMA_WIDTH == 8 && defined(__F16C__)
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(at)));
#elif TRILEMMA_WIDTH == 16 && defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(at)));
#else
  const vu bits = __builtin_convertvector(*static_cast<const vh_at*>(at), vu);
  const vf value = (vf)((bits & 0x7FFFu) << 13) * splat(0x1p112f);
  return (vf)((vu)value | (bits & 0x8000u) << 16);
#endif
}

typedef uint8_t bytes_at __attribute__((vector_size(W), aligned(1), may_alias));
typedef int8_t signed_bytes_at __attribute__((vector_size(W), aligned(1), may_alias));
inline vf load_bytes(const void* at, bool has_sign) {
  return has_sign ? __builtin_convertvector(*static_cast<const signed_bytes_at*>(at), vf)
                  : __builtin_convertvector(*static_cast<const bytes_at*>(at), vf);
}
inline vf load_scale(const void* at, long bytes) {
  return bytes == 2 ? load_half(at) : load(static_cast<const float*>(at));
}

// Goes through the groups of a panel: W = scale * code + offset for codes less half their range.
struct Groups {
  const TrilemmaMatrix& w;
  const Layout f;
  const char* at;  // of the next group; after `next`, its codes
  vf scale[2] = {}, offset[2] = {}, of_super[2] = {}, super_offset[2] = {};

  Groups(const TrilemmaMatrix& matrix, const char* panel) : w(matrix), f(matrix), at(panel) {}

  void next(long group) {
    if (w.groups_of_super && group % w.groups_of_super == 0) {
      for (int side = 0; side < 2; ++side) {
        of_super[side] = load_scale(at + side * W * w.scale_bytes, w.scale_bytes);
        if (w.offset == MINIMUM) super_offset[side] = load_half(at + NR * w.scale_bytes + side * W * 2);
      }
      at += f.super_header;
    }
    const vf half = splat(float(1 << (w.bits - 1)));
    for (int side = 0; side < 2; ++side) {
      const char *of_scale = at + side * W * f.scale_bytes, *rest = at + NR * f.scale_bytes;
      scale[side] = w.groups_of_super ? of_super[side] * load_bytes(of_scale, w.signed_scales) : load_scale(of_scale, f.scale_bytes);
      if (w.offset == ZERO) offset[side] = scale[side] * (half - load_bytes(rest + side * W, false));
      if (w.offset == MINIMUM) {
        const vf least = w.groups_of_super ? -super_offset[side] * load_bytes(rest + side * W, false) : load_half(rest + side * W * 2);
        offset[side] = scale[side] * half + least;
      }
    }
    at += f.group_header;
  }
};

}  // namespace trilemma
