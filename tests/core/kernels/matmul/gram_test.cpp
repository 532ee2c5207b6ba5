#include "core/kernels/matmul/gram.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

template <class T>
class GramKernel : public testing::Test {};
TYPED_TEST_SUITE(GramKernel, DeviceTypes);

// A symmetric matrix.
template <class T>
Values<T> symmetric_values(int64_t m) {
  Values<T> values = random_values<T>(m * m, 2, -1, 1);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      values[static_cast<size_t>(j * m + i)] = values[static_cast<size_t>(i * m + j)];
    }
  }
  return values;
}

template <class T>
Values<T> gram_of(const Values<T>& a, int64_t m, int64_t k, bool trans, double beta, int threads) {
  Values<T> c = symmetric_values<T>(m);
  set_num_threads(threads);
  kernels::gram(TestDevice{}, Gram<T>{.m = m,
                                      .k = k,
                                      .a = a.data(),
                                      .trans = trans,
                                      .c = c.data(),
                                      .alpha = 0.5,
                                      .beta = beta});
  set_num_threads(0);
  return c;
}

// Sizes on both sides of a band's 64 rows, and more bands than rows of 64 make.
TYPED_TEST(GramKernel, EqualsThreeLoops) {
  using T = TypeParam;
  for (const auto& [m, k] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {31, 33}, {64, 5}, {65, 31}, {128, 257}, {300, 7}, {600, 33}}) {
    for (const bool trans : {false, true}) {
      for (const double beta : {0.0, -2.0}) {
        SCOPED_TRACE(testing::Message() << m << " x " << k << (trans ? " T" : "") << ' ' << beta);
        const Values<T> a = random_values<T>(m * k, 1, -1, 1);
        const Values<T> before = symmetric_values<T>(m);
        std::vector<double> expected;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < m; ++j) {
            double sum = 0;
            for (int64_t l = 0; l < k; ++l) {
              const auto at = [&](int64_t r) {
                return as_double(a[static_cast<size_t>(trans ? l * m + r : r * k + l)]);
              };
              sum += at(i) * at(j);
            }
            expected.push_back(0.5 * sum +
                               beta * as_double(before[static_cast<size_t>(i * m + j)]));
          }
        }
        const Values<T> c = gram_of<T>(a, m, k, trans, beta, 1);
        expect_close(c, expected, 8 + static_cast<double>(k) / 4);
        finish_work();
        if constexpr (std::is_same_v<TestDevice, Cpu>) {
          EXPECT_EQ(c, (gram_of<T>(a, m, k, trans, beta, 2)));
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < i; ++j) {
              ASSERT_EQ(as_double(c[static_cast<size_t>(i * m + j)]),
                        as_double(c[static_cast<size_t>(j * m + i)]));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tapestry
