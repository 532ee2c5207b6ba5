// The innermost loop of the vectorised products: a tile of sums in registers.
#if defined(TAPESTRY_KERNELS_TILE_SUMS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_TILE_SUMS_SIMD_INL_H_
#undef TAPESTRY_KERNELS_TILE_SUMS_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_TILE_SUMS_SIMD_INL_H_
#endif

#include <cstdint>

#include "core/kernels/cpu/simd-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

enum class Left { kAsStored, kTransposed };

// c (kRows, kVectors * lanes) (=|+=) a (kRows, depth) * b (depth, ...)
template <Left kLeft, int kRows, int kVectors, class T>
HWY_INLINE void tile_product(int64_t depth, const T* HWY_RESTRICT a, int64_t a_stride,
                             const T* HWY_RESTRICT b, int64_t b_stride, T* HWY_RESTRICT c,
                             int64_t c_stride, bool add) {
  const Tag<T> d;
  const int64_t lanes = lanes_of<T>();
  hn::Vec<Tag<T>> sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = add ? hn::LoadU(d, c + r * c_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<Tag<T>> right[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + k * b_stride + v * lanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const T left = kLeft == Left::kTransposed ? a[k * a_stride + r] : a[r * a_stride + k];
      const auto lefts = hn::Set(d, left);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(lefts, right[v], sums[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], d, c + r * c_stride + v * lanes);
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Transposes a block of four by four elements (two by two for double).
template <class T>
HWY_INLINE void transpose_block(const T* x, int64_t stride, float* y, int64_t y_stride) {
  const hn::Full128<float> d;
  const hn::Full128<uint64_t> d64;
  const Whole io;
  const auto a = io.load(d, x), b = io.load(d, x + stride);
  const auto c = io.load(d, x + 2 * stride), e = io.load(d, x + 3 * stride);
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low)), d, y);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low)), d, y + y_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high)), d, y + 2 * y_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high)), d, y + 3 * y_stride);
}
HWY_INLINE void transpose_block(const double* x, int64_t stride, double* y, int64_t y_stride) {
  const hn::Full128<double> d;
  const auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + stride);
  hn::StoreU(hn::InterleaveLower(d, a, b), d, y);
  hn::StoreU(hn::InterleaveUpper(d, a, b), d, y + y_stride);
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
