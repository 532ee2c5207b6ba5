// For ARM64's processors with FEAT_DotProd: nearly all from 2018 on.
#ifdef __aarch64__
#include <arm_neon.h>

#include "core/kernels/packed/packed_tile.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
namespace tapestry::kernels {
namespace {

struct Isa {
  using V = int32x4_t;
  using F = float32x4_t;
  static constexpr int64_t kLanes = 4;
  static constexpr int kMost = 2;  // 16 sums and 8 factors; with three rows GCC spills sums
  static constexpr int kMostInt4 = 1;
  static constexpr int kSums = 1;

  static V load(const void* memory) { return vld1q_s32(static_cast<const int32_t*>(memory)); }
  static F load(const float* memory) { return vld1q_f32(memory); }
  static V everywhere(int32_t four) { return vdupq_n_s32(four); }
  static F everywhere(float x) { return vdupq_n_f32(x); }
  static V dot(V sum, V a, V b) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
  }
  static V start(V) { return everywhere(0); }
  static V low_halves(V v) { return vandq_s32(v, everywhere(0x0f0f0f0f)); }
  static V high_halves(V v) { return low_halves(vshrq_n_s32(v, 4)); }
  static F lower(V v) { return vreinterpretq_f32_s32(vshlq_n_s32(v, 16)); }
  static F upper(V v) { return vreinterpretq_f32_s32(vandq_s32(v, everywhere(-0x10000))); }
  static F to_floats(V v) { return vcvtq_f32_s32(v); }
  static F times(F a, F b) { return vmulq_f32(a, b); }
  static F fused(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static void store(F v, const float* bias, float* y, int64_t count) {
    if (count == kLanes) {
      vst1q_f32(y, bias != nullptr ? vaddq_f32(v, vld1q_f32(bias)) : v);
      return;
    }
    float lanes[kLanes];
    vst1q_f32(lanes, v);
    for (int64_t i = 0; i < count; ++i) y[i] = bias != nullptr ? lanes[i] + bias[i] : lanes[i];
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/packed/packed_dot-inl.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_dotprod_tile() { return multiply_tile; }
PackedTileFunction packed_int4_dotprod_tile() { return multiply_int4_tile; }
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
#else
#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_dotprod_tile() { return nullptr; }
PackedTileFunction packed_int4_dotprod_tile() { return nullptr; }
}  // namespace tapestry::kernels
#endif
