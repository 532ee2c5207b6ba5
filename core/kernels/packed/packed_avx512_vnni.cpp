#ifdef __x86_64__
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
  using F = __m512;
  static constexpr int64_t kLanes = 16;
  static constexpr int kMost = 8;      // 16 sums hide the latency, more are no faster
  static constexpr int kMostInt4 = 5;  // 20 of them
  static constexpr int kSums = kEnoughSums;

  static V load(const void* memory) { return _mm512_load_si512(memory); }
  static F load(const float* memory) { return _mm512_load_ps(memory); }
  static V everywhere(int32_t four) { return _mm512_set1_epi32(four); }
  static F everywhere(float x) { return _mm512_set1_ps(x); }
  static V dot(V sum, V a, V b) {
    // GCC 12 copies an intrinsic's sums twice in each step, which takes a third of the rate.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  static V start(V v) { return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(v, 7)); }
  static V low_halves(V v) { return _mm512_and_si512(v, everywhere(0x0f0f0f0f)); }
  static V high_halves(V v) { return low_halves(_mm512_srli_epi32(v, 4)); }
  static F lower(V v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
  static F upper(V v) { return _mm512_castsi512_ps(_mm512_and_si512(v, everywhere(-0x10000))); }
  static F to_floats(V v) { return _mm512_cvtepi32_ps(v); }
  static F times(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fused(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static void store(F v, const float* bias, float* y, int64_t count) {
    const auto mask = static_cast<__mmask16>((1U << count) - 1);
    if (bias != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, bias));
    _mm512_mask_storeu_ps(y, mask, v);
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/packed/packed_dot-inl.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_avx512_vnni_tile() { return multiply_tile; }
PackedTileFunction packed_int4_avx512_vnni_tile() { return multiply_int4_tile; }
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
#else
#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_avx512_vnni_tile() { return nullptr; }
PackedTileFunction packed_int4_avx512_vnni_tile() { return nullptr; }
}  // namespace tapestry::kernels
#endif
