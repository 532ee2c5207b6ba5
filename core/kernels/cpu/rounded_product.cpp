#include "core/kernels/cpu/rounded_product.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/kernels/cpu/ordered_product.h"
#include "core/kernels/cpu/tile_product.h"
#include "core/scratch.h"

namespace tapestry::kernels {
namespace {

using Side = TileOperand::Side;

float rounded(float x) {
  const bool subnormal = std::abs(x) < std::numeric_limits<float>::min();
  return subnormal ? std::copysign(0.0F, x) : static_cast<float>(BFloat16(x));
}
float rounded(BFloat16 x) { return static_cast<float>(x); }

// Dense copies of the stored rows.
void round_rows(const Factor& factor, int64_t rows, int64_t n, float* y) {
  factor.visit([&](const auto* x) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) y[r * n + i] = rounded(x[r * factor.stride + i]);
    }
  });
}

void product_of_copies(const RoundedProduct& p) {
  const int64_t a_rows = p.a.along_k ? p.m : p.k, a_cols = p.a.along_k ? p.k : p.m;
  const int64_t b_rows = p.b.along_k ? p.n : p.k, b_cols = p.b.along_k ? p.k : p.n;
  Scratch<float> a(a_rows * a_cols), b(b_rows * b_cols);
  round_rows(p.a, a_rows, a_cols, a.data());
  round_rows(p.b, b_rows, b_cols, b.data());
  product(BlasProduct<float>{.m = static_cast<int>(p.m),
                             .n = static_cast<int>(p.n),
                             .k = static_cast<int>(p.k),
                             .a = a.data(),
                             .lda = static_cast<int>(a_cols),
                             .trans_a = !p.a.along_k,
                             .b = b.data(),
                             .ldb = static_cast<int>(b_cols),
                             .trans_b = p.b.along_k,
                             .c = p.c,
                             .ldc = static_cast<int>(p.ldc),
                             .alpha = 1,
                             .beta = p.add ? 1.0 : 0.0});
}

void product_on_tiles(const RoundedProduct& p, Bfloat16Kernel kernel) {
  TileOperand a(Side::kLeft, p.m, p.k), b(Side::kRight, p.n, p.k);
  a.pack(p.a);
  b.pack(p.b);
  TileSession(kernel).multiply(
      {.a = a.view(), .b = b.view(), .c = p.c, .ldc = p.ldc, .add = p.add});
}

}  // namespace

bool bfloat16_runs_on_tiles() { return has_tiles(bfloat16_kernel()); }

void rounded_product(const RoundedProduct& p, Bfloat16Kernel kernel) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m && !p.add; ++i) std::fill_n(p.c + i * p.ldc, p.n, 0.0F);
    return;
  }
  (has_tiles(kernel) ? product_on_tiles(p, kernel) : product_of_copies(p));
}

}  // namespace tapestry::kernels
