#include "core/kernels/cpu/ordered_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "core/base/philox.h"
#include "core/kernels/packed/packed_linear.h"

namespace tapestry::kernels {
namespace {

std::vector<float> numbers(int64_t count, uint32_t stream) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(static_cast<float>(philox_normal({7, 0, stream}, static_cast<uint64_t>(i))));
  }
  return all;
}

struct Sides {
  int m, n, k;
  bool trans_a, trans_b;
};

BlasProduct<float> product_of(const Sides& s, const std::vector<float>& a,
                              const std::vector<float>& b, std::vector<float>& c, double alpha,
                              double beta) {
  return {.m = s.m,
          .n = s.n,
          .k = s.k,
          .a = a.data(),
          .lda = s.trans_a ? s.m + 3 : s.k + 3,
          .trans_a = s.trans_a,
          .b = b.data(),
          .ldb = s.trans_b ? s.k + 5 : s.n + 5,
          .trans_b = s.trans_b,
          .c = c.data(),
          .ldc = s.n + 1,
          .alpha = alpha,
          .beta = beta};
}

// One sum after the other, as the header says.
std::vector<float> reference(const BlasProduct<float>& p, std::vector<float> c) {
  for (int i = 0; i < p.m; ++i) {
    for (int j = 0; j < p.n; ++j) {
      float sum = 0;
      for (int k = 0; k < p.k; ++k) {
        const float left = p.trans_a ? p.a[k * p.lda + i] : p.a[i * p.lda + k];
        const float right = p.trans_b ? p.b[j * p.ldb + k] : p.b[k * p.ldb + j];
        sum = std::fma(left, right, sum);
      }
      float& out = c[static_cast<size_t>(i * p.ldc + j)];
      const float scaled = static_cast<float>(p.alpha) * sum;
      out = p.beta == 0 ? scaled : std::fma(out, static_cast<float>(p.beta), scaled);
    }
  }
  return c;
}

class OrderedProduct : public testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(OrderedProduct, HasTheBitsOfOneSumAfterTheOther) {
  if (!why_no_portable_bits().empty()) GTEST_SKIP();
  const auto [m, n, k] = GetParam();
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {1.0, 1.0}, {0.3, 0.0}, {0.3, 0.7}}) {
        const Sides sides{m, n, k, trans_a, trans_b};
        const auto a = numbers((m + 3) * (k + 3), 1), b = numbers((n + 5) * (k + 5), 2);
        const std::vector<float> before = numbers(m * (n + 1), 3);
        std::vector<float> c = before;
        const BlasProduct<float> p = product_of(sides, a, b, c, alpha, beta);
        ordered_product(p);
        EXPECT_EQ(c, reference(p, before)) << trans_a << trans_b << ' ' << alpha << ' ' << beta;
      }
    }
  }
}

// Below, at and above the heights and widths of tiles on each processor, and the depth of a piece.
INSTANTIATE_TEST_SUITE_P(Shapes, OrderedProduct,
                         testing::Combine(testing::Values(1, 4, 12, 13, 31),
                                          testing::Values(1, 8, 24, 32, 37, 75),
                                          testing::Values(0, 1, 7, 256, 515)));

TEST(OrderedProductTest, HasTheBitsOfPackedWeights) {
  if (!why_no_portable_bits().empty()) GTEST_SKIP();
  constexpr int kRows = 9, kIn = 300, kOut = 70;
  const std::vector<float> x = numbers(kRows * kIn, 1), w = numbers(kOut * kIn, 2);
  std::vector<float> whole(kRows * kOut), packed(kRows * kOut);
  ordered_product({.m = kRows,
                   .n = kOut,
                   .k = kIn,
                   .a = x.data(),
                   .lda = kIn,
                   .trans_a = false,
                   .b = w.data(),
                   .ldb = kIn,
                   .trans_b = true,
                   .c = whole.data(),
                   .ldc = kOut,
                   .alpha = 1,
                   .beta = 0});
  const PackedMatrix matrix(WeightFormat::kFloat32, w.data(), kOut, kIn);
  for (const int rows : {1, 3, kRows}) {
    packed_linear(Cpu{}, {.rows = rows, .x = x.data(), .weight = matrix, .y = packed.data()});
    EXPECT_TRUE(std::equal(packed.begin(), packed.begin() + rows * kOut, whole.begin())) << rows;
  }
}

}  // namespace
}  // namespace tapestry::kernels
