#if defined(__GNUC__) && !defined(__clang__)
// False positive in GCC 12's own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "core/kernels/packed/packed_tile.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512vnni")
namespace tapestry::kernels {
namespace {

struct Isa {
  using V = __m512i;
  static constexpr int64_t kLanes = 16;
  static constexpr int kMost = 14;  // 28 of the 32 registers hold sums
  static constexpr int kSums = kEnoughSums;

  static V load(const int8_t* w) { return _mm512_load_si512(w); }
  static V start(const int32_t* sums) {
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(_mm512_load_si512(sums), 7));
  }
  static V everywhere(int32_t four) { return _mm512_set1_epi32(four); }
  static V dot(V sum, V a, V b) { return _mm512_dpbusd_epi32(sum, a, b); }
  static void deliver(V sum, float scale, const float* scales, const float* bias, float* y,
                      int64_t count) {
    const auto mask = static_cast<__mmask16>((1U << count) - 1);
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(scale));
    v = _mm512_mul_ps(v, _mm512_load_ps(scales));
    if (bias != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, bias));
    _mm512_mask_storeu_ps(y, mask, v);
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/packed/packed_int8_vnni-inl.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_avx512_vnni_tile() { return multiply_tile; }
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
