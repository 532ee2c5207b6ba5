#include "core/kernels/cpu/rounded_product.h"

#include <algorithm>

#include "core/error.h"
#include "core/kernels/cpu/bfloat16_pairs.h"
#include "core/kernels/cpu/packed_bf16.h"
#include "core/kernels/cpu/tile_product.h"
#include "core/parallel.h"
#include "core/scratch.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512bf16")
namespace tapestry::kernels {
namespace {

// Rounds `rows` rows of n floats, `stride` apart, to dense rows of floats.
void round_rows(const float* x, int64_t stride, int64_t rows, int64_t n, float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; i += pairs::kLanes) {
      const __mmask16 mask = pairs::first_lanes(n - i);
      const __m512 values = _mm512_maskz_loadu_ps(mask, x + r * stride + i);
      const __m512i low = pairs::round_two(values, _mm512_setzero_ps());
      const __m512i wide =
          _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(low)), 16);
      _mm512_mask_storeu_ps(y + r * n + i, mask, _mm512_castsi512_ps(wide));
    }
  }
}

}  // namespace
}  // namespace tapestry::kernels
HWY_POP_ATTRIBUTES

namespace tapestry::kernels {
namespace {

using Product = BlasProduct<float>;
using Side = TileOperand::Side;

void product_of_rounded_copies(const Product& p) {
  const int64_t a_rows = p.trans_a ? p.k : p.m, a_cols = p.trans_a ? p.m : p.k;
  const int64_t b_rows = p.trans_b ? p.n : p.k, b_cols = p.trans_b ? p.k : p.n;
  Scratch<float> a(a_rows * a_cols), b(b_rows * b_cols);
  round_rows(p.a, p.lda, a_rows, a_cols, a.data());
  round_rows(p.b, p.ldb, b_rows, b_cols, b.data());
  Product rounded = p;
  rounded.a = a.data(), rounded.lda = static_cast<int>(a_cols);
  rounded.b = b.data(), rounded.ldb = static_cast<int>(b_cols);
  blas_product(rounded);
}

void product_on_tiles(const Product& p, Bfloat16Kernel kernel) {
  TileOperand a(Side::kLeft, p.m, p.k), b(Side::kRight, p.n, p.k);
  a.pack({p.a, p.lda, !p.trans_a});
  b.pack({p.b, p.ldb, p.trans_b});
  TileSession(kernel).multiply(
      {.a = a.view(), .b = b.view(), .c = p.c, .ldc = p.ldc, .add = p.beta == 1});
}

// A product of the batch that is worth all threads by itself.
constexpr double kSharedFlops = 32e6;

void check_factors(double alpha, double beta) {
  check(alpha == 1 && (beta == 0 || beta == 1), "rounded_product",
        "expected alpha 1 and beta 0 or 1, got ", alpha, " and ", beta, '.');
}

}  // namespace

bool runs_on_tiles(Precision precision) {
  return precision == Precision::kBfloat16 && (bfloat16_kernel() == Bfloat16Kernel::kAmx ||
                                               bfloat16_kernel() == Bfloat16Kernel::kAmxEmulated);
}

void rounded_product(const Product& p, Bfloat16Kernel kernel) {
  check_factors(p.alpha, p.beta);
  switch (kernel) {
    case Bfloat16Kernel::kAmx:
    case Bfloat16Kernel::kAmxEmulated:
      return product_on_tiles(p, kernel);
    case Bfloat16Kernel::kAvx512:
      return packed_bf16_product(p);
    case Bfloat16Kernel::kRounded:
      return product_of_rounded_copies(p);
    case Bfloat16Kernel::kNone:
      break;
  }
  fail(ErrorKind::kConfig, "[rounded_product] this processor has no AVX512-BF16.");
}

void tile_gemm(const Gemm<float>& g) {
  check_factors(g.alpha, g.beta);
  const auto multiply = [&](int64_t item) {
    TileOperand a(Side::kLeft, g.m, g.k), b(Side::kRight, g.n, g.k);
    pack_operands({{a, {g.a + item * g.stride_a, g.lda, !g.trans_a}},
                   {b, {g.b + item * g.stride_b, g.ldb, g.trans_b}}});
    multiply_tiles({{.a = a.view(),
                     .b = b.view(),
                     .c = g.c + item * g.stride_c,
                     .ldc = g.ldc,
                     .add = g.beta == 1}});
  };
  const double flops =
      2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  if (g.batch > 1 && flops < kSharedFlops) return parallel_for(g.batch, multiply);
  for (int64_t item = 0; item < g.batch; ++item) multiply(item);
}

}  // namespace tapestry::kernels
