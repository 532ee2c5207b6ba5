// For processors with AVX-VNNI and without AVX-512: Intel's from Alder Lake on.
#ifdef __x86_64__
#include <immintrin.h>

#include <cstring>

#include "core/kernels/packed/packed_tile.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avxvnni")
namespace tapestry::kernels {
namespace {

struct Isa {
  using V = __m256i;
  using F = __m256;
  static constexpr int64_t kLanes = 8;
  static constexpr int kMost = 3;  // 12 of the 16 registers hold sums
  static constexpr int kMostInt4 = 1;
  static constexpr int kSums = 1;

  static V load(const void* memory) { return _mm256_load_si256(static_cast<const V*>(memory)); }
  static F load(const float* memory) { return _mm256_load_ps(memory); }
  static V everywhere(int32_t four) { return _mm256_set1_epi32(four); }
  static F everywhere(float x) { return _mm256_set1_ps(x); }
  static V dot(V sum, V a, V b) {
    // GCC 12 copies an intrinsic's sums from register to register in each step.
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "xm"(b));
    return sum;
  }
  static V start(V v) { return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(v, 7)); }
  static V low_halves(V v) { return _mm256_and_si256(v, everywhere(0x0f0f0f0f)); }
  static V high_halves(V v) { return low_halves(_mm256_srli_epi32(v, 4)); }
  static F lower(V v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
  static F upper(V v) { return _mm256_castsi256_ps(_mm256_and_si256(v, everywhere(-0x10000))); }
  static F to_floats(V v) { return _mm256_cvtepi32_ps(v); }
  static F times(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fused(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static void store(F v, const float* bias, float* y, int64_t count) {
    const V lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const V mask = _mm256_cmpgt_epi32(everywhere(static_cast<int32_t>(count)), lanes);
    if (bias != nullptr) v = _mm256_add_ps(v, _mm256_maskload_ps(bias, mask));
    _mm256_maskstore_ps(y, mask, v);
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/packed/packed_dot-inl.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_avx_vnni_tile() { return multiply_tile; }
PackedTileFunction packed_int4_avx_vnni_tile() { return multiply_int4_tile; }
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
#else
#include "core/kernels/packed/packed_tile.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_avx_vnni_tile() { return nullptr; }
PackedTileFunction packed_int4_avx_vnni_tile() { return nullptr; }
}  // namespace tapestry::kernels
#endif
