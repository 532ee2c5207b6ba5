// Products of rounded factors against loops in double over factors that this file rounds by itself.
#include "core/kernels/cpu/rounded_product.h"

#include <bit>

#include "core/kernels/cross_entropy.h"
#include "core/kernels/gemm.h"
#include "core/kernels/linear.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

// The kernels of this processor.
std::vector<Bfloat16Kernel> kernels_here() {
  std::vector<Bfloat16Kernel> all;
#ifndef __SANITIZE_ADDRESS__  // two minutes there; TileProduct runs the same loops
  all.push_back(Bfloat16Kernel::kAmxEmulated);
#endif
  if (cpu_traits().avx512_bf16) {
    all.insert(all.end(), {Bfloat16Kernel::kAvx512, Bfloat16Kernel::kRounded});
  }
  if (cpu_traits().amx_bf16 && tiles_allowed()) all.push_back(Bfloat16Kernel::kAmx);
  return all;
}

class RoundedProductTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_multiply_bfloat16()) {
      GTEST_SKIP() << "this processor has no AVX512-BF16; core.EmulatedTiles runs it anywhere";
    }
  }
};

// To the nearest bfloat16, ties to even.
float rounded(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = rounded(value);
  return values;
}

// Row-major (rows, cols), or stored transposed.
struct Matrix {
  const std::vector<float>& values;
  int64_t ld;
  bool transposed;
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(transposed ? j * ld + i : i * ld + j)];
  }
};

// Expects |c - (a b + before)| <= tolerance * (|a| |b| + |before|) everywhere.
void expect_product(const std::vector<float>& c, int64_t ldc, int64_t m, int64_t n, int64_t k,
                    const Matrix& a, const Matrix& b, const std::vector<float>* before,
                    double tolerance) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<size_t>(i * ldc + j);
      double sum = before != nullptr ? (*before)[at] : 0, size = std::abs(sum);
      for (int64_t p = 0; p < k; ++p) {
        sum += a(i, p) * b(p, j);
        size += std::abs(a(i, p) * b(p, j));
      }
      ASSERT_LE(std::abs(c[at] - sum), tolerance * size) << "row " << i << ", column " << j;
    }
  }
}

struct Sizes {
  int64_t m, n, k;
};

// Around strips (14), panels (32), tiles (16 by 32) and pairs (2), and across every block (256,
// 512, 1024).
constexpr Sizes kSizes[] = {{1, 1, 1},     {2, 3, 2},     {14, 32, 31},  {15, 33, 33},
                            {31, 48, 64},  {28, 49, 257}, {64, 65, 128}, {300, 20, 40},
                            {13, 17, 512}, {13, 17, 530}, {5, 1100, 10}, {258, 30, 1027}};

void expect_three_loops(Bfloat16Kernel kernel) {
  for (const Sizes& s : kSizes) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        for (const double beta : {0.0, 1.0}) {
          SCOPED_TRACE(concat(s.m, 'x', s.n, 'x', s.k, trans_a ? " A^T" : "", trans_b ? " B^T" : "",
                              " beta ", beta));
          const int64_t lda = (trans_a ? s.m : s.k) + 3, ldb = (trans_b ? s.k : s.n) + 1;
          const int64_t ldc = s.n + 5;
          const auto a = random_values<float>((trans_a ? s.k : s.m) * lda, 1);
          const auto b = random_values<float>((trans_b ? s.n : s.k) * ldb, 2);
          const auto before = random_values<float>(s.m * ldc, 3);
          std::vector<float> c = before;
          kernels::rounded_product(
              {static_cast<int>(s.m), static_cast<int>(s.n), static_cast<int>(s.k), a.data(),
               static_cast<int>(lda), trans_a, b.data(), static_cast<int>(ldb), trans_b, c.data(),
               static_cast<int>(ldc), 1, beta},
              kernel);
          const auto ra = rounded(a), rb = rounded(b);
          const std::vector<float>* const added = beta == 1 ? &before : nullptr;
          expect_product(c, ldc, s.m, s.n, s.k, {ra, lda, trans_a}, {rb, ldb, trans_b}, added,
                         1e-5);
          // Two roundings of at most 2^-9 each.
          expect_product(c, ldc, s.m, s.n, s.k, {a, lda, trans_a}, {b, ldb, trans_b}, added,
                         1.01 * 0x1p-8);
          for (int64_t i = 0; i < s.m; ++i) {
            for (int64_t j = s.n; j < ldc; ++j) ASSERT_EQ(c[i * ldc + j], before[i * ldc + j]);
          }
        }
      }
    }
  }
}

TEST_F(RoundedProductTest, EqualsThreeLoopsOverRoundedFactors) {
  for (const Bfloat16Kernel kernel : kernels_here()) {
    SCOPED_TRACE(name_of(kernel));
    expect_three_loops(kernel);
  }
}

TEST_F(RoundedProductTest, RoundsTiesToEvenAndKeepsInfinityAndNan) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {
      1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -1 - 0x1p-8f - 0x1p-20f, 0x1p-130f, 1e30f, inf, -inf,
      nan,         3.4028235e38f};
  const std::vector<float> expected = {1,   1 + 0x1p-6f, -1 - 0x1p-7f, 0,  rounded(1e30f),
                                       inf, -inf,        nan,          inf};
  const float one = 1;
  const auto size = static_cast<int>(x.size());
  for (const Bfloat16Kernel kernel : kernels_here()) {
    SCOPED_TRACE(name_of(kernel));
    std::vector<float> y(x.size());
    kernels::rounded_product({size, 1, 1, x.data(), 1, false, &one, 1, false, y.data(), 1, 1, 0},
                             kernel);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_EQ(y[i], expected[i]) << x[i];
      }
    }
  }
}

TEST_F(RoundedProductTest, RefusesOtherFactors) {
  const float one = 1;
  float c = 0;
  EXPECT_THROW(kernels::rounded_product({1, 1, 1, &one, 1, false, &one, 1, false, &c, 1, 2, 0}),
               Error);
  EXPECT_THROW(kernels::rounded_product({1, 1, 1, &one, 1, false, &one, 1, false, &c, 1, 1, 0.5}),
               Error);
}

TEST_F(RoundedProductTest, GemmInTilesBitsDoNotDependOnThreads) {
  const int64_t m = 200, n = 160, k = 3000;  // cut along k as well
  const auto a = random_values<float>(k * m, 1), b = random_values<float>(k * n, 2);
  const auto ra = rounded(a), rb = rounded(b);
  expect_same_for_any_threads([&] {
    std::vector<float> c(m * n);
    Gemm<float> g;
    g.m = m, g.n = n, g.k = k;
    g.a = a.data(), g.lda = m, g.trans_a = true;
    g.b = b.data(), g.ldb = n;
    g.c = c.data(), g.ldc = n;
    g.precision = Precision::kBfloat16;
    kernels::gemm(Cpu{}, g);
    expect_product(c, n, m, n, k, {ra, m, true}, {rb, n, false}, nullptr, 1e-5);
    return c;
  });
}

TEST_F(RoundedProductTest, LinearRoundsTheFactorsOfItsThreeProducts) {
  const LinearShape shape{150, 70, 90, Activation::kRelu, Precision::kBfloat16};
  const auto x = random_values<float>(shape.rows * shape.in, 1);
  const auto w = random_values<float>(shape.out * shape.in, 2);
  const auto dy = random_values<float>(shape.rows * shape.out, 3);
  std::vector<float> z(dy.size()), y(dy.size()), dx(x.size()), dw(w.size());
  kernels::linear<float>(Cpu{}, shape, {x.data(), w.data(), nullptr, z.data(), y.data()});
  const auto rx = rounded(x), rw = rounded(w);
  expect_product(z, shape.out, shape.rows, shape.out, shape.in, {rx, shape.in, false},
                 {rw, shape.in, true}, nullptr, 1e-5);

  LinearBackward<float> args{};
  args.x = x.data(), args.weight = w.data(), args.y = y.data(), args.dy = dy.data();
  args.dx = dx.data(), args.d_weight = dw.data();
  kernels::linear_backward(Cpu{}, shape, args);
  std::vector<float> dz = rounded(dy);
  for (size_t i = 0; i < dz.size(); ++i) dz[i] = y[i] > 0 ? dz[i] : 0;
  expect_product(dx, shape.in, shape.rows, shape.in, shape.out, {dz, shape.out, false},
                 {rw, shape.in, false}, nullptr, 1e-5);
  expect_product(dw, shape.in, shape.out, shape.in, shape.rows, {dz, shape.out, true},
                 {rx, shape.in, false}, nullptr, 1e-5);
}

TEST_F(RoundedProductTest, LinearOfEmptySizes) {
  for (const auto& [rows, in, out] : {Sizes{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
    SCOPED_TRACE(concat(rows, ' ', in, ' ', out));
    const LinearShape shape{rows, in, out, Activation::kNone, Precision::kBfloat16};
    const auto x = random_values<float>(rows * in + 1, 1);
    const auto w = random_values<float>(out * in + 1, 2);
    std::vector<float> y(static_cast<size_t>(rows * out + 1), 5), dx(x.size(), 5), dw(w.size(), 5);
    kernels::linear<float>(Cpu{}, shape, {x.data(), w.data(), nullptr, nullptr, y.data()});
    LinearBackward<float> args{};
    args.x = x.data(), args.weight = w.data(), args.dy = y.data();
    args.dx = dx.data(), args.d_weight = dw.data();
    kernels::linear_backward(Cpu{}, shape, args);
    for (auto* values : {&y, &dx, &dw}) {
      for (size_t i = 0; i + 1 < values->size(); ++i) EXPECT_EQ((*values)[i], 0);
      EXPECT_EQ(values->back(), 5);
    }
  }
}

struct ClassifierResult {
  double loss = 0;
  std::vector<float> dx, dw;
};

ClassifierResult classify(Precision precision, const std::vector<float>& x,
                          const std::vector<float>& w) {
  const int64_t rows = 90, in = 40, classes = 300;
  CrossEntropyShape shape{rows, classes, 0.1, -1, precision};
  const auto targets = random_ints(rows, 4, classes);
  ClassifierResult result{0, std::vector<float>(rows * in), std::vector<float>(classes * in)};
  LinearCrossEntropy<float> args;
  args.in = in, args.x = x.data(), args.weight = w.data(), args.targets = targets.data();
  args.grad_scale = 1.0 / rows;
  args.dx = result.dx.data(), args.d_weight = result.dw.data();
  CrossEntropySums sums;
  kernels::linear_cross_entropy(Cpu{}, shape, args, &sums);
  result.loss = sums.loss;
  return result;
}

// Of two vectors, |a - b| / |b|.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}

TEST_F(RoundedProductTest, TheClassifierRoundsItsFactors) {
  const auto x = random_values<float>(90 * 40, 1), w = random_values<float>(300 * 40, 2, -0.3, 0.3);
  const ClassifierResult mixed = classify(Precision::kBfloat16, x, w);
  // The logits are those of rounded factors; the gradients' other factor, dz, is rounded as well.
  const ClassifierResult expected = classify(Precision::kFull, rounded(x), rounded(w));
  EXPECT_NEAR(mixed.loss, expected.loss, 1e-6 * expected.loss);
  EXPECT_LT(distance(mixed.dx, expected.dx), 0x1p-8);
  EXPECT_LT(distance(mixed.dw, expected.dw), 0x1p-8);
  EXPECT_GT(distance(mixed.dx, expected.dx), 0x1p-11);
  EXPECT_GT(distance(mixed.dw, expected.dw), 0x1p-11);
}

}  // namespace
}  // namespace tapestry
