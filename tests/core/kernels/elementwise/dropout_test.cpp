#include <hwy/targets.h>

#include "core/kernels/elementwise/dropout.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

template <class T>
class DropoutTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(DropoutTest, FloatingTypes);

TYPED_TEST(DropoutTest, DrawsTheBitsOfPhiloxOnEveryTarget) {
  using T = TypeParam;
  on_every_target([] {
    for (const float p : {0.1f, 0.5f, 0.999f, 1.0f}) {
      const Dropout dropout{p, {0x123456789abcdef0ull, 0xfeedbeefu, 0x9a0b0c0du}};
      for (const int64_t n : {1, 31, 33, 257, 40000}) {
        const Values<T> x = random_values<T>(n, 1);
        std::vector<double> expected;
        for (int64_t i = 0; i < n; ++i) {
          const double factor = dropout_factor(dropout, static_cast<uint64_t>(i));
          expected.push_back(factor == 0 ? 0 : factor * x[i]);
        }
        for (const Write write : kBothWrites) {
          const Values<T> before = random_values<T>(n, 2);
          Values<T> y = before;
          kernels::dropout(TestDevice{}, dropout, x.data(), y.data(), n, write);
          expect_close(y, delivered(expected, widen(before), write), 2);
        }
      }
    }
  });
}

TYPED_TEST(DropoutTest, KeepsTheMeanAndTheRightShare) {
  using T = TypeParam;
  const Dropout dropout{0.3f, {1, 2, 3}};
  const int64_t n = 200000;
  Values<T> x(n, 1);
  kernels::dropout(TestDevice{}, dropout, x.data(), x.data(), n, Write::kSet);
  double sum = 0;
  int64_t zeros = 0;
  for (const T v : x) {
    sum += v;
    zeros += v == 0;
  }
  EXPECT_NEAR(sum / n, 1, 0.006);  // four standard deviations are 0.0059
  EXPECT_NEAR(static_cast<double>(zeros) / n, 0.3, 0.0041);
}

TYPED_TEST(DropoutTest, OffCopies) {
  using T = TypeParam;
  const Values<T> x = random_values<T>(33, 1);
  Values<T> y(33);
  kernels::dropout(TestDevice{}, {}, x.data(), y.data(), 33, Write::kSet);
  EXPECT_EQ(x, y);
}

TYPED_TEST(DropoutTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const Values<T> x = random_values<T>(100003, 1);
  expect_same_for_any_threads([&] {
    Values<T> y(x.size());
    kernels::dropout(TestDevice{}, {0.2f, {4, 5, 6}}, x.data(), y.data(), 100003, Write::kSet);
    return y;
  });
}

}  // namespace
}  // namespace tapestry
