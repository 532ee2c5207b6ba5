// For processors with AVX-VNNI and without AVX-512: Intel's from Alder Lake on.
#include <immintrin.h>

#include <cstring>

#include "core/kernels/packed/packed_tile.h"
#include "hwy/base.h"

HWY_PUSH_ATTRIBUTES("avx2,avxvnni")
namespace tapestry::kernels {
namespace {

struct Isa {
  using V = __m256i;
  static constexpr int64_t kLanes = 8;
  static constexpr int kMost = 2;  // 8 of the 16 registers hold sums
  static constexpr int kSums = 1;

  static V load(const void* w) { return _mm256_load_si256(static_cast<const V*>(w)); }
  static V start(const int32_t* sums) {
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(load(sums), 7));
  }
  static V everywhere(int32_t four) { return _mm256_set1_epi32(four); }
  static V dot(V sum, V a, V b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
  static void deliver(V sum, float scale, const float* scales, const float* bias, float* y,
                      int64_t count) {
    const V lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const V mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(count)), lanes);
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(scale));
    v = _mm256_mul_ps(v, _mm256_load_ps(scales));
    if (bias != nullptr) v = _mm256_add_ps(v, _mm256_maskload_ps(bias, mask));
    _mm256_maskstore_ps(y, mask, v);
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/packed/packed_int8_vnni-inl.h"

namespace tapestry::kernels {
PackedTileFunction packed_int8_avx_vnni_tile() { return multiply_tile; }
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES
