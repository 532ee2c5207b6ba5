// What tile_units.h promises of BFMMLA: the order of its sums, how each is rounded, and the bound
// of their error; of the emulation everywhere, of the instruction where the processor has it.
#include <bit>
#include <cfenv>

#include "core/kernels/cpu/rounded_product.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry::kernels {
namespace {

std::vector<Bfloat16Kernel> square_kernels() {
  std::vector<Bfloat16Kernel> all = {Bfloat16Kernel::kBfmmlaEmulated};
  if (cpu_traits().arm_bf16) all.push_back(Bfloat16Kernel::kBfmmla);
  return all;
}

// c (m, n) += a (m, k) b^T (n, k).
void add_squares(Bfloat16Kernel kernel, int64_t m, int64_t n, int64_t k, const Values<BFloat16>& a,
                 const Values<BFloat16>& b, Values<float>& c) {
  rounded_product({.m = m,
                   .n = n,
                   .k = k,
                   .a = {a.data(), k, true},
                   .b = {b.data(), k, true},
                   .c = c.data(),
                   .ldc = n,
                   .add = true},
                  kernel);
}

// The two roundings of the processor: of the neighbours that differ, the odd one.
float odd_sum(float a, float b) {
  const volatile float x = a, y = b;
  const int before = std::fegetround();
  std::fesetround(FE_DOWNWARD);
  const volatile float below = x + y;
  std::fesetround(FE_UPWARD);
  const volatile float above = x + y;
  std::fesetround(before);
  const float low = below, high = above;
  if (low == high) return a + b;
  return std::bit_cast<uint32_t>(low) % 2 == 1 ? low : high;
}

float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}

// Numbers of many exponents, so that nearly all sums are rounded and some products are subnormal.
Values<BFloat16> scattered(int64_t n, uint64_t seed) {
  const Values<float> values = random_values<float>(n, seed, -1, 1);
  const Values<int32_t> exponents = random_ints(n, seed + 1, 30);
  Values<BFloat16> result;
  for (size_t i = 0; i < values.size(); ++i) {
    result.push_back(BFloat16(std::ldexp(values[i], i % 9 == 0 ? -63 : exponents[i] - 15)));
  }
  return result;
}

TEST(SquareProduct, AddsPairsInOrderAndRoundsToOdd) {
  constexpr int64_t kM = 3, kN = 5, kK = 301;
  const Values<BFloat16> a = scattered(kM * kK, 1), b = scattered(kN * kK, 2);
  const Values<float> before = random_values<float>(kM * kN, 3);
  Values<float> expected = before;
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      const auto product = [&](int64_t k) {
        if (k >= kK) return 0.0F;
        return flushed(float(a[i * kK + k]) * float(b[j * kK + k]));
      };
      float& sum = expected[static_cast<size_t>(i * kN + j)];
      for (int64_t k = 0; k < kK; k += 2) {
        sum = flushed(odd_sum(sum, flushed(odd_sum(product(k), product(k + 1)))));
      }
    }
  }
  for (const Bfloat16Kernel kernel : square_kernels()) {
    SCOPED_TRACE(name_of(kernel));
    Values<float> c = before;
    add_squares(kernel, kM, kN, kK, a, b, c);
    for (size_t i = 0; i < c.size(); ++i) EXPECT_EQ(c[i], expected[i]) << i;
  }
}

TEST(SquareProduct, KeepsItsBoundOfError) {
  constexpr int64_t kSide = 9;
  for (const int64_t k : {2, 64, 1023}) {
    for (const float least : {-1.0F, 0.5F}) {  // sums that cancel, sums that grow
      Values<BFloat16> a, b;
      for (const float x : random_values<float>(kSide * k, 1, least, 1)) a.push_back(BFloat16(x));
      for (const float x : random_values<float>(kSide * k, 2, least, 1)) b.push_back(BFloat16(x));
      for (const Bfloat16Kernel kernel : square_kernels()) {
        SCOPED_TRACE(concat(name_of(kernel), ", k ", k, ", from ", least));
        Values<float> c(kSide * kSide, 0.0F);
        add_squares(kernel, kSide, kSide, k, a, b, c);
        double most = 0;
        for (int64_t i = 0; i < kSide; ++i) {
          for (int64_t j = 0; j < kSide; ++j) {
            double exact = 0, size = 0;
            for (int64_t p = 0; p < k; ++p) {
              const double product = double(float(a[i * k + p])) * float(b[j * k + p]);
              exact += product, size += std::abs(product);
            }
            most = std::max(most, std::abs(c[i * kSide + j] - exact) / size);
          }
        }
        EXPECT_LE(most, (static_cast<double>(k) / 2 + 1) * 0x1p-23);
        if (k == 1023) {
          EXPECT_GT(most, 0x1p-25) << "the sums were not rounded";
        }
      }
    }
  }
}

// As the architecture says: what is too large is infinite, only one NaN comes out, and subnormal
// factors are 0.
TEST(SquareProduct, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  struct Case {
    float a, b, before, expected;
  };
  const Case cases[] = {{2, 3, 1, 7},
                        {inf, 2, 1, inf},
                        {inf, 0, 1, nan},
                        {inf, 1, -inf, nan},
                        {nan, 1, 0, nan},
                        {0x1p-130F, 0x1p100F, 0, 0},
                        {0x1p100F, 0x1p100F, 0, inf},
                        {-0x1p100F, 0x1p100F, 1, -inf},
                        {0x1p127F, 1, 0x1p127F, inf},
                        {0x1p-70F, 0x1p-70F, 0, 0},
                        {1, 1, 0x1p-24F, 1 + 0x1p-23F},
                        {1, 1, -0x1p-30F, 1 - 0x1p-24F}};
  for (const Bfloat16Kernel kernel : square_kernels()) {
    for (const Case& x : cases) {
      SCOPED_TRACE(concat(name_of(kernel), ": ", x.before, " + ", x.a, " * ", x.b));
      Values<float> c = {x.before};
      add_squares(kernel, 1, 1, 1, {BFloat16(x.a)}, {BFloat16(x.b)}, c);
      if (std::isnan(x.expected)) {
        EXPECT_EQ(std::bit_cast<uint32_t>(c[0]), 0x7fc00000U);
      } else {
        EXPECT_EQ(c[0], x.expected);
      }
    }
  }
}

}  // namespace
}  // namespace tapestry::kernels
