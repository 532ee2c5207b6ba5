#include "core/kernels/softmax.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr int64_t kRowSizes[] = {1, 31, 33, 257, 260, 1100};
constexpr int64_t kSoftmaxRows = 5;

// y and log y of one row.
void naive_softmax(const double* x, double* y, double* log_y, int64_t cols) {
  double sum = 0;
  for (int64_t i = 0; i < cols; ++i) sum += std::exp(x[i]);
  for (int64_t i = 0; i < cols; ++i) {
    y[i] = std::exp(x[i]) / sum;
    log_y[i] = x[i] - std::log(sum);
  }
}

template <class T>
class SoftmaxTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(SoftmaxTest, FloatingTypes);

TYPED_TEST(SoftmaxTest, EqualsTheDefinition) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t cols : kRowSizes) {
      Values<T> x = random_values<T>(kSoftmaxRows * cols, 1, -9, 9), y(x.size()), log_y(x.size());
      const std::vector<double> wide = widen(x);
      std::vector<double> expected(x.size()), log_expected(x.size());
      for (int64_t r = 0; r < kSoftmaxRows; ++r) {
        naive_softmax(&wide[r * cols], &expected[r * cols], &log_expected[r * cols], cols);
      }
      kernels::softmax(TestDevice{}, x.data(), y.data(), kSoftmaxRows, cols);
      expect_close(y, expected, 8);
      kernels::log_softmax(TestDevice{}, x.data(), log_y.data(), kSoftmaxRows, cols);
      expect_close(log_y, log_expected, 8);
      Values<T> in_place = x;
      kernels::softmax(TestDevice{}, in_place.data(), in_place.data(), kSoftmaxRows, cols);
      EXPECT_EQ(in_place, y);
      kernels::log_softmax(TestDevice{}, x.data(), x.data(), kSoftmaxRows, cols);
      EXPECT_EQ(x, log_y);
    }
  });
}

// dx_i = sum_j dy_j * d y_j / d x_i, written out with the Jacobian.
TYPED_TEST(SoftmaxTest, BackwardIsTheJacobianProduct) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t cols : kRowSizes) {
      const int64_t n = kSoftmaxRows * cols;
      const Values<T> x = random_values<T>(n, 1, -3, 3), dy = random_values<T>(n, 2);
      Values<T> y(x.size()), log_y(x.size());
      kernels::softmax(TestDevice{}, x.data(), y.data(), kSoftmaxRows, cols);
      kernels::log_softmax(TestDevice{}, x.data(), log_y.data(), kSoftmaxRows, cols);
      std::vector<double> dx(x.size()), log_dx(x.size());
      for (int64_t r = 0; r < kSoftmaxRows; ++r) {
        for (int64_t i = 0; i < cols; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            const double p = y[r * cols + i], q = y[r * cols + j], g = dy[r * cols + j];
            dx[r * cols + i] += g * q * ((i == j) - p);
            log_dx[r * cols + i] += g * ((i == j) - p);
          }
        }
      }
      for (const Write write : kBothWrites) {
        const Values<T> before = random_values<T>(n, 3);
        Values<T> out = before;
        kernels::softmax_backward(TestDevice{}, y.data(), dy.data(), out.data(), kSoftmaxRows, cols,
                                  write);
        expect_close(out, delivered(dx, widen(before), write), 8);
        out = before;
        kernels::log_softmax_backward(TestDevice{}, log_y.data(), dy.data(), out.data(),
                                      kSoftmaxRows, cols, write);
        expect_close(out, delivered(log_dx, widen(before), write), 40);
      }
      Values<T> in_place = dy;
      kernels::softmax_backward(TestDevice{}, y.data(), in_place.data(), in_place.data(),
                                kSoftmaxRows, cols, Write::kSet);
      expect_close(in_place, dx, 8);
    }
  });
}

TYPED_TEST(SoftmaxTest, LargeAndMaskedScores) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  on_every_target([&] {
    Values<T> x(40, -inf), y(40);
    kernels::softmax(TestDevice{}, x.data(), y.data(), 1, 40);
    EXPECT_EQ(y, Values<T>(40, 0));
    x[35] = 30000;
    x[36] = 30000;
    x[2] = -30000;
    kernels::softmax(TestDevice{}, x.data(), y.data(), 1, 40);
    Values<T> expected(40, 0);
    expected[35] = expected[36] = T(0.5);
    EXPECT_EQ(y, expected);
  });
}

TYPED_TEST(SoftmaxTest, DoesNotHideNan) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t place : {0, 20, 36}) {
      Values<T> x(37, 1), y(37), log_y(37);
      x[place] = std::numeric_limits<T>::quiet_NaN();
      kernels::softmax(TestDevice{}, x.data(), y.data(), 1, 37);
      kernels::log_softmax(TestDevice{}, x.data(), log_y.data(), 1, 37);
      for (const T v : y) EXPECT_TRUE(std::isnan(v)) << place;
      for (const T v : log_y) EXPECT_TRUE(std::isnan(v)) << place;
    }
  });
}

TYPED_TEST(SoftmaxTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const Values<T> x = random_values<T>(300 * 99, 1);
  expect_same_for_any_threads([&] {
    Values<T> y(x.size());
    kernels::softmax(TestDevice{}, x.data(), y.data(), 300, 99);
    kernels::softmax_backward(TestDevice{}, y.data(), x.data(), y.data(), 300, 99, Write::kAdd);
    return y;
  });
}

}  // namespace
}  // namespace tapestry
