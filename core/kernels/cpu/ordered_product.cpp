#include "core/kernels/cpu/ordered_product.h"

#include <algorithm>

#include "core/kernels/cpu/linear_rows.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/cpu/ordered_product.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/cpu/simd-inl.h"
#include "core/kernels/cpu/tile_sums_simd-inl.h"

#ifndef TAPESTRY_ORDERED_PRODUCT
#define TAPESTRY_ORDERED_PRODUCT
namespace tapestry {

using FloatProduct = BlasProduct<float>;

// sums (m, n), `stride` between rows, = op(A) op(B).
using OrderedSums = void (*)(const FloatProduct& p, float* sums, int64_t stride);

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// A tile of sums, a row's vectors of B and an element of A fill the registers: 32 of AVX-512 and
// NEON, 16 of AVX2.
#if HWY_TARGET == HWY_AVX3
constexpr int kHighest = 12, kWidest = 2;
#elif HWY_TARGET == HWY_AVX2
constexpr int kHighest = 4, kWidest = 3;
#else
constexpr int kHighest = 8, kWidest = 3;
#endif
constexpr int kBlock = 4;  // of a transposition; heights are multiples of it
constexpr int64_t kLanes = hn::MaxLanes(Tag<float>());
// So deep a panel of B stays in the L1 cache, and A's strips of a tile of C in the L2 cache.
constexpr int64_t kDepth = 256;

// y (depth, width) = the rows or columns [first, first + count) of a factor and zeros behind them,
// from `begin` along k on. `along_k`: the factor's rows are along k.
void pack(const float* x, int64_t ldx, bool along_k, int64_t first, int64_t count, int64_t begin,
          int64_t depth, int64_t width, float* y) {
  if (!along_k) {
    for (int64_t k = 0; k < depth; ++k, y += width) {
      const float* const row = x + (begin + k) * ldx + first;
      std::copy_n(row, count, y);
      std::fill(y + count, y + width, 0.0F);
    }
    return;
  }
  x += first * ldx + begin;
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; r + kBlock <= count; r += kBlock) {
    const float* const rows = x + r * ldx;
    int64_t k = 0;
    for (; k + kBlock <= depth; k += kBlock) {
      transpose_block(rows + k, ldx, y + k * width + r, width);
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < kBlock; ++i) y[k * width + r + i] = rows[i * ldx + k];
    }
  }
#endif
  for (; r < width; ++r) {
    for (int64_t k = 0; k < depth; ++k) y[k * width + r] = r < count ? x[r * ldx + k] : 0.0F;
  }
}

// The sums of a strip of `height` rows by `vectors` vectors of columns, of which C has fewer at its
// edges.
using Tile = void (*)(int64_t depth, const float* a, const float* b, float* c, int64_t ldc,
                      bool add);
template <int kHeight, int kVectors>
void tile(int64_t depth, const float* a, const float* b, float* c, int64_t ldc, bool add) {
  tile_product<Left::kTransposed, kHeight, kVectors>(depth, a, kHeight, b, kVectors * kLanes, c,
                                                     ldc, add);
}
template <int kHeight>
Tile tile_of(int64_t vectors) {
  if constexpr (kWidest == 3) {
    if (vectors == 3) return tile<kHeight, 3>;
  }
  return vectors == 2 ? tile<kHeight, 2> : tile<kHeight, 1>;
}
Tile tile_of(int64_t height, int64_t vectors) {
  if constexpr (kHighest == 12) {
    if (height == 12) return tile_of<12>(vectors);
  }
  if constexpr (kHighest >= 8) {
    if (height == 8) return tile_of<8>(vectors);
  }
  return tile_of<4>(vectors);
}

constexpr int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

void ordered_sums(const FloatProduct& p, float* sums, int64_t stride) {
  const int64_t m = p.m, n = p.n, k = p.k, deepest = std::min(kDepth, k);
  Scratch<float> left(rounded_up(m, kBlock) * deepest), right(kWidest * kLanes * deepest);
  for (int64_t begin = 0; begin < k; begin += kDepth) {
    const int64_t depth = std::min(kDepth, k - begin);
    const auto strip = [&](int64_t i) { return left.data() + i * depth; };
    const auto height_at = [&](int64_t i) {
      return std::min<int64_t>(kHighest, rounded_up(m - i, kBlock));
    };
    for (int64_t i = 0; i < m; i += kHighest) {
      pack(p.a, p.lda, !p.trans_a, i, std::min<int64_t>(kHighest, m - i), begin, depth,
           height_at(i), strip(i));
    }
    for (int64_t j = 0; j < n; j += kWidest * kLanes) {
      const int64_t cols = std::min<int64_t>(kWidest * kLanes, n - j);
      const int64_t vectors = (cols + kLanes - 1) / kLanes, width = vectors * kLanes;
      pack(p.b, p.ldb, p.trans_b, j, cols, begin, depth, width, right.data());
      for (int64_t i = 0; i < m; i += kHighest) {
        const int64_t height = height_at(i), rows = std::min(height, m - i);
        const Tile multiply = tile_of(height, vectors);
        float* const c = sums + i * stride + j;
        if (rows == height && cols == width) {
          multiply(depth, strip(i), right.data(), c, stride, begin > 0);
          continue;
        }
        HWY_ALIGN float edge[kHighest * kWidest * kLanes] = {};
        for (int64_t r = 0; r < rows && begin > 0; ++r) {
          std::copy_n(c + r * stride, cols, edge + r * width);
        }
        multiply(depth, strip(i), right.data(), edge, width, begin > 0);
        for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * width, cols, c + r * stride);
      }
    }
  }
}

OrderedSums ordered_sums_function() { return ordered_sums; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(ordered_sums_function);

}  // namespace

void kernels::ordered_product(const BlasProduct<float>& p) {
  const OrderedSums ordered_sums = HWY_DYNAMIC_DISPATCH(ordered_sums_function)();
  const int64_t m = p.m, n = p.n, ldc = p.ldc;
  const auto alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  const auto deliver = linear_rows_functions<float>().deliver;
  if (beta == 0 && p.k > 0) {
    ordered_sums(p, p.c, ldc);
    for (int64_t i = 0; i < m && alpha != 1; ++i) {
      deliver(p.c + i * ldc, alpha, 0, p.c + i * ldc, n);
    }
    return;
  }
  Scratch<float> sums(m * n);
  if (p.k > 0) {
    ordered_sums(p, sums.data(), n);
  } else {
    std::fill_n(sums.data(), m * n, 0.0F);
  }
  for (int64_t i = 0; i < m; ++i) deliver(sums.data() + i * n, alpha, beta, p.c + i * ldc, n);
}

}  // namespace tapestry
#endif  // HWY_ONCE
