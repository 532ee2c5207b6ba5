// Shared by the tests of the kernels' bfloat16 instances. Inputs are rounded to bfloat16 first, the
// references compute in double from the rounded ones.
#pragma once

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {

inline std::vector<double> to_doubles(const Values<BFloat16>& values) {
  std::vector<double> wide;
  for (const BFloat16 v : values) wide.push_back(static_cast<float>(v));
  return wide;
}

/// Kernels compute in float and round once, by 2^-8 of the result at most.
inline void expect_rounded(const Values<BFloat16>& actual, const std::vector<double>& expected) {
  finish_work();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(static_cast<float>(actual[i]), expected[i], 0.004 * std::abs(expected[i]) + 1e-5)
        << "element " << i;
  }
}

/// Calls kernel(y, write) for both ways to deliver `result`.
template <class Kernel>
void expect_delivered(const std::vector<double>& result, Kernel kernel) {
  for (const Write write : kBothWrites) {
    const auto before = random_values<BFloat16>(static_cast<int64_t>(result.size()), 99);
    Values<BFloat16> y = before;
    kernel(y.data(), write);
    expect_rounded(y, delivered(result, to_doubles(before), write));
  }
}

}  // namespace tapestry
