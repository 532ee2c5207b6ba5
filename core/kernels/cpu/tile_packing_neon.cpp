// Whole tiles by NEON. Words of 32 bits are pairs of neighbours along k: a tile is 16 by 16 of
// them, which are read four by four, and turned where the operand wants them the other way than the
// source has them.
#ifdef __aarch64__
#include "core/kernels/cpu/tile_packing_neon.h"

#include <arm_neon.h>

#include "core/kernels/cpu/word_vectors.h"

namespace tapestry::kernels {
namespace {

using Words = NeonWords;
using V = Words::V;

V bits_of(float32x4_t x) { return vreinterpretq_u32_f32(x); }
V without_sign(V bits) { return vandq_u32(bits, vdupq_n_u32(0x7fffffff)); }

// To the nearest bfloat16, ties to even, subnormal numbers to 0; in the upper half of the words.
V round_words(float32x4_t x) {
  const V bits = bits_of(x), size = without_sign(bits);
  const V odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  V rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  rounded = vbslq_u32(vcgtq_u32(size, vdupq_n_u32(0x7f800000)),
                      vorrq_u32(bits, vdupq_n_u32(0x400000)), rounded);
  rounded = vbslq_u32(vcltq_u32(size, vdupq_n_u32(0x00800000)),
                      vandq_u32(bits, vdupq_n_u32(0x80000000)), rounded);
  return vandq_u32(rounded, vdupq_n_u32(0xffff0000));
}

// Conversions of floats, as tile_operand.h defines the parts of an operand.
struct RoundedPart {
  static V of(float32x4_t x) { return round_words(x); }
};
struct HighPart {
  static V of(float32x4_t x) {
    const float32x4_t largest = vdupq_n_f32(0x1.fep127F);
    const V bits = bits_of(x), sign = vandq_u32(bits, vdupq_n_u32(0x80000000));
    // A NaN stays one.
    const float32x4_t finite = vmaxq_f32(vminq_f32(x, largest), vnegq_f32(largest));
    const V one = vorrq_u32(sign, vdupq_n_u32(0x3f800000));
    const V infinite = vceqq_u32(without_sign(bits), vdupq_n_u32(0x7f800000));
    return round_words(vreinterpretq_f32_u32(vbslq_u32(infinite, one, bits_of(finite))));
  }
};
struct LowPart {
  static V of(float32x4_t x) {
    return round_words(vsubq_f32(x, vreinterpretq_f32_u32(HighPart::of(x))));
  }
};

// Four words of eight neighbours along k.
template <class Part>
V words_along(const float* x) {
  return vreinterpretq_u32_u16(vcombine_u16(vshrn_n_u32(Part::of(vld1q_f32(x)), 16),
                                            vshrn_n_u32(Part::of(vld1q_f32(x + 4)), 16)));
}
template <class Part>
V words_along(const BFloat16* x) {
  return Words::load(x);
}
// Four words of two rows.
template <class Part>
V words_across(const float* even, const float* odd) {
  return vorrq_u32(vshrq_n_u32(Part::of(vld1q_f32(even)), 16), Part::of(vld1q_f32(odd)));
}
template <class Part>
V words_across(const BFloat16* even, const BFloat16* odd) {
  const auto load = [](const BFloat16* x) {
    return vld1_u16(reinterpret_cast<const uint16_t*>(x));
  };
  return vorrq_u32(vmovl_u16(load(even)), vshll_n_u16(load(odd), 16));
}

void turn(V (&v)[4]) {
  const V a = Words::low_words(v[0], v[1]), b = Words::high_words(v[0], v[1]);
  const V c = Words::low_words(v[2], v[3]), d = Words::high_words(v[2], v[3]);
  v[0] = Words::low_halves(a, c), v[1] = Words::high_halves(a, c);
  v[2] = Words::low_halves(b, d), v[3] = Words::high_halves(b, d);
}

template <class Part, class T>
void pack_part(const T* x, int64_t stride, bool along_k, bool turned, BFloat16* tile) {
  for (int64_t r = 0; r < kTileStrip; r += 4) {
    for (int64_t c = 0; c < kTileStrip; c += 4) {
      V words[4];
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i) {
        const T* const row = along_k ? x + (r + i) * stride + 2 * c : x + 2 * (r + i) * stride + c;
        words[i] = along_k ? words_along<Part>(row) : words_across<Part>(row, row + stride);
      }
      if (turned) turn(words);
      BFloat16* const out = turned ? tile + c * kTileDepth + 2 * r : tile + r * kTileDepth + 2 * c;
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i) Words::store(words[i], out + i * kTileDepth);
    }
  }
}

}  // namespace

void pack_whole_tile(const Factor& source, TileOperand::Side side, TileForm form, BFloat16* tile) {
  const bool along_k = source.along_k, turned = along_k == (side == TileOperand::Side::kRight);
  if (source.narrow != nullptr) {
    pack_part<RoundedPart>(source.narrow, source.stride, along_k, turned, tile);
  } else if (form == TileForm::kRounded) {
    pack_part<RoundedPart>(source.wide, source.stride, along_k, turned, tile);
  } else {
    pack_part<HighPart>(source.wide, source.stride, along_k, turned, tile);
    pack_part<LowPart>(source.wide, source.stride, along_k, turned, tile + kElementsPerTile);
  }
}

}  // namespace tapestry::kernels
#endif
