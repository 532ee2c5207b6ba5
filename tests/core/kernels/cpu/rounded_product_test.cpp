// Products of rounded factors against loops in double over factors that this file rounds by itself.
#include "core/kernels/cpu/rounded_product.h"

#include <bit>

#include "core/kernels/matmul/gemm.h"
#include "core/kernels/matmul/linear.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

// The kernels of this processor.
std::vector<Bfloat16Kernel> kernels_here() {
  std::vector<Bfloat16Kernel> all = {Bfloat16Kernel::kWidened};
#ifndef __SANITIZE_ADDRESS__  // two minutes there; TileProduct runs the same loops
  all.push_back(Bfloat16Kernel::kAmxEmulated);
  all.push_back(Bfloat16Kernel::kBfmmlaEmulated);
#endif
  if (cpu_traits().arm_bf16) all.push_back(Bfloat16Kernel::kBfmmla);
  if (cpu_traits().avx512_bf16) all.push_back(Bfloat16Kernel::kAvx512);
  if (cpu_traits().amx_bf16 && tiles_allowed()) all.push_back(Bfloat16Kernel::kAmx);
  return all;
}

// To the nearest bfloat16, ties to even.
float rounded(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = rounded(value);
  return values;
}

std::vector<BFloat16> narrow(const std::vector<float>& values) {
  std::vector<BFloat16> result;
  for (const float value : values) result.push_back(BFloat16(value));
  return result;
}

std::vector<float> wide(const std::vector<BFloat16>& values) {
  std::vector<float> result;
  for (const BFloat16 value : values) result.push_back(static_cast<float>(value));
  return result;
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

struct RoundedSizes {
  int64_t m, n, k;
};

// Around rows (8), tiles (16 by 32), blocks (32) and pairs (2), and across every piece (512, 1024).
constexpr RoundedSizes kRoundedSizes[] = {
    {1, 1, 1},     {2, 3, 2},     {14, 32, 31},  {15, 33, 33},  {31, 48, 64},  {28, 49, 257},
    {64, 65, 128}, {300, 20, 40}, {13, 17, 512}, {13, 17, 530}, {5, 1100, 10}, {258, 30, 1027}};

template <class T>
void expect_rounded_product(Bfloat16Kernel kernel, const std::vector<float>& a, int64_t lda,
                            bool trans_a, const std::vector<float>& b, int64_t ldb, bool trans_b,
                            const RoundedSizes& s, bool add) {
  const int64_t ldc = s.n + 5;
  const auto before = random_values<float>(s.m * ldc, 3);
  std::vector<float> c = before;
  std::vector<T> left, right;
  for (const float v : a) left.push_back(static_cast<T>(v));
  for (const float v : b) right.push_back(static_cast<T>(v));
  kernels::rounded_product({.m = s.m,
                            .n = s.n,
                            .k = s.k,
                            .a = {left.data(), lda, !trans_a},
                            .b = {right.data(), ldb, trans_b},
                            .c = c.data(),
                            .ldc = ldc,
                            .add = add},
                           kernel);
  const auto ra = rounded(a), rb = rounded(b);
  const std::vector<float>* const added = add ? &before : nullptr;
  expect_product(c, ldc, s.m, s.n, s.k, {ra, lda, trans_a}, {rb, ldb, trans_b}, added, 1e-5);
  // Two roundings of at most 2^-8 each, which here never add up to more than one.
  expect_product(c, ldc, s.m, s.n, s.k, {a, lda, trans_a}, {b, ldb, trans_b}, added, 1.01 * 0x1p-8);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = s.n; j < ldc; ++j) ASSERT_EQ(c[i * ldc + j], before[i * ldc + j]);
  }
}

void expect_rounded_product(Bfloat16Kernel kernel) {
  for (const RoundedSizes& s : kRoundedSizes) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        for (const bool add : {false, true}) {
          SCOPED_TRACE(concat(s.m, 'x', s.n, 'x', s.k, trans_a ? " A^T" : "", trans_b ? " B^T" : "",
                              add ? ", added" : ""));
          const int64_t lda = (trans_a ? s.m : s.k) + 3, ldb = (trans_b ? s.k : s.n) + 1;
          const auto a = random_values<float>((trans_a ? s.k : s.m) * lda, 1);
          const auto b = random_values<float>((trans_b ? s.n : s.k) * ldb, 2);
          expect_rounded_product<float>(kernel, a, lda, trans_a, b, ldb, trans_b, s, add);
          expect_rounded_product<BFloat16>(kernel, a, lda, trans_a, b, ldb, trans_b, s, add);
        }
      }
    }
  }
}

TEST(RoundedProduct, EqualsThreeLoopsOverRoundedFactors) {
  for (const Bfloat16Kernel kernel : kernels_here()) {
    SCOPED_TRACE(name_of(kernel));
    expect_rounded_product(kernel);
  }
}

TEST(RoundedProduct, RoundsTiesToEvenAndKeepsInfinityAndNan) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {
      1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -1 - 0x1p-8f - 0x1p-20f, 0x1p-130f, 1e30f, inf, -inf,
      nan,         3.4028235e38f};
  const std::vector<float> expected = {1,   1 + 0x1p-6f, -1 - 0x1p-7f, 0,  rounded(1e30f),
                                       inf, -inf,        nan,          inf};
  const float one = 1;
  const auto size = static_cast<int64_t>(x.size());
  for (const Bfloat16Kernel kernel : kernels_here()) {
    SCOPED_TRACE(name_of(kernel));
    std::vector<float> y(x.size());
    kernels::rounded_product({.m = size,
                              .n = 1,
                              .k = 1,
                              .a = {x.data(), 1, true},
                              .b = {&one, 1, false},
                              .c = y.data(),
                              .ldc = 1},
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

TEST(RoundedProduct, GemmInTilesBitsDoNotDependOnThreads) {
  const int64_t m = 200, n = 160, k = 3000;  // cut along k as well
  const auto a = narrow(random_values<float>(k * m, 1)), b = narrow(random_values<float>(k * n, 2));
  const auto wide_a = wide(a), wide_b = wide(b);
  expect_same_for_any_threads([&] {
    std::vector<BFloat16> c(m * n);
    Gemm<BFloat16> g;
    g.m = m, g.n = n, g.k = k;
    g.a = a.data(), g.lda = m, g.trans_a = true;
    g.b = b.data(), g.ldb = n;
    g.c = c.data(), g.ldc = n;
    kernels::gemm(Cpu{}, g);
    expect_product(wide(c), n, m, n, k, {wide_a, m, true}, {wide_b, n, false}, nullptr, 0x1p-9);
    return c;
  });
}

TEST(RoundedProduct, LinearOfEmptySizes) {
  for (const auto& [rows, in, out] : {RoundedSizes{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
    SCOPED_TRACE(concat(rows, ' ', in, ' ', out));
    const LinearShape shape{rows, in, out, Activation::kNone};
    const BFloat16 five(5);
    const auto x = random_values<BFloat16>(rows * in + 1, 1);
    const auto w = random_values<BFloat16>(out * in + 1, 2);
    std::vector<BFloat16> y(static_cast<size_t>(rows * out + 1), five), dx(x.size(), five),
        dw(w.size(), five);
    kernels::linear<BFloat16>(Cpu{}, shape, {x.data(), w.data(), nullptr, nullptr, y.data()});
    LinearBackward<BFloat16> args{};
    args.x = x.data(), args.weight = w.data(), args.dy = y.data();
    args.dx = dx.data(), args.d_weight = dw.data();
    kernels::linear_backward(Cpu{}, shape, args);
    for (auto* values : {&y, &dx, &dw}) {
      for (size_t i = 0; i + 1 < values->size(); ++i) EXPECT_EQ((*values)[i], BFloat16());
      EXPECT_EQ(values->back(), five);
    }
  }
}

}  // namespace
}  // namespace tapestry
