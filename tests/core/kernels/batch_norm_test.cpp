#include "core/kernels/batch_norm.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr int64_t kFeatures[] = {1, 31, 33, 257};
constexpr double kBatchNormEps = 1e-3;

template <class T>
struct BatchNormData {
  int64_t rows, cols;
  Values<T> x, gamma, beta, dy;

  BatchNormData(int64_t rows, int64_t cols)
      : rows(rows),
        cols(cols),
        x(random_values<T>(rows * cols, 1)),
        gamma(random_values<T>(cols, 3, 0.5, 2)),
        beta(random_values<T>(cols, 4)),
        dy(random_values<T>(rows * cols, 5)) {}
};

// Column by column, in more digits than the kernels have.
struct NaiveBatchNorm {
  std::vector<double> mean, variance, y, xhat, dx, d_gamma, d_beta;

  template <class T>
  explicit NaiveBatchNorm(const BatchNormData<T>& data)
      : mean(data.cols),
        variance(data.cols),
        y(data.x.size()),
        xhat(data.x.size()),
        dx(data.x.size()),
        d_gamma(data.cols),
        d_beta(data.cols) {
    const int64_t rows = data.rows, cols = data.cols;
    for (int64_t c = 0; c < cols; ++c) {
      long double sum = 0, squares = 0;
      for (int64_t r = 0; r < rows; ++r) sum += data.x[r * cols + c];
      const long double exact = sum / rows;
      for (int64_t r = 0; r < rows; ++r) {
        squares += (data.x[r * cols + c] - exact) * (data.x[r * cols + c] - exact);
      }
      mean[c] = static_cast<double>(exact);
      variance[c] = static_cast<double>(squares / rows);
      const long double rstd = 1 / std::sqrt(squares / rows + kBatchNormEps);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = r * cols + c;
        xhat[i] = static_cast<double>((data.x[i] - exact) * rstd);
        y[i] = xhat[i] * data.gamma[c] + data.beta[c];
        d_gamma[c] += data.dy[i] * xhat[i];
        d_beta[c] += data.dy[i];
      }
      // The product with the full Jacobian of the column:
      // d y_j / d x_i = gamma rstd ((i == j) - 1 / n - xhat_i xhat_j / n).
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < rows; ++j) {
          const double jacobian =
              (i == j) - 1.0 / rows - xhat[i * cols + c] * xhat[j * cols + c] / rows;
          dx[i * cols + c] +=
              data.dy[j * cols + c] * data.gamma[c] * static_cast<double>(rstd) * jacobian;
        }
      }
    }
  }
};

template <class T>
struct NormedBatch {
  Values<T> mean, variance, y;

  explicit NormedBatch(const BatchNormData<T>& data, bool with_beta = true)
      : mean(data.cols), variance(data.cols), y(data.x.size()) {
    kernels::column_moments(TestDevice{}, data.rows, data.cols, data.x.data(), mean.data(),
                            variance.data());
    kernels::batch_norm(
        TestDevice{}, {data.rows, data.cols, kBatchNormEps},
        BatchNormForward<T>{data.x.data(), mean.data(), variance.data(), data.gamma.data(),
                            with_beta ? data.beta.data() : nullptr, y.data()});
  }
};

template <class T>
class BatchNormTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(BatchNormTest, FloatingTypes);

TYPED_TEST(BatchNormTest, EqualsTheDefinition) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t rows : {1, 2, 40}) {
      for (const int64_t cols : kFeatures) {
        SCOPED_TRACE(cols);
        const BatchNormData<T> data(rows, cols);
        const NaiveBatchNorm expected(data);
        const NormedBatch<T> actual(data);
        expect_close(actual.mean, expected.mean, 8);
        expect_close(actual.variance, expected.variance, 20);
        expect_close(actual.y, expected.y, 400);
      }
    }
  });
}

TYPED_TEST(BatchNormTest, WithoutBetaItIsLeftOut) {
  using T = TypeParam;
  BatchNormData<T> data(5, 33);
  const NormedBatch<T> without(data, /*with_beta=*/false);
  std::fill(data.beta.begin(), data.beta.end(), T{0});
  EXPECT_EQ(without.y, NormedBatch<T>(data).y);
}

// A large common offset must not cost the digits of the variance. Many rows: many tiles.
TYPED_TEST(BatchNormTest, VarianceSurvivesALargeMean) {
  using T = TypeParam;
  on_every_target([] {
    BatchNormData<T> data(513, 3);
    for (T& v : data.x) v = std::round(v * 8) / 8 + 1024;  // exact in float
    expect_close(NormedBatch<T>(data).variance, NaiveBatchNorm(data).variance, 1500);
  });
}

TYPED_TEST(BatchNormTest, BackwardIsTheJacobianProduct) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t rows : {1, 2, 40}) {
      for (const int64_t cols : kFeatures) {
        SCOPED_TRACE(cols);
        const BatchNormData<T> data(rows, cols);
        const NaiveBatchNorm naive(data);
        const NormedBatch<T> forward(data);
        for (const Write write : kBothWrites) {
          const Values<T> before = random_values<T>(rows * cols, 7);
          const Values<T> small = random_values<T>(cols, 8);
          Values<T> dx = before, d_gamma = small, d_beta = small;
          kernels::batch_norm_backward(
              TestDevice{}, {rows, cols, kBatchNormEps},
              BatchNormBackward<T>{data.x.data(), forward.mean.data(), forward.variance.data(),
                                   data.gamma.data(), data.dy.data(), dx.data(), write,
                                   d_gamma.data(), write, d_beta.data(), write});
          expect_close(dx, delivered(naive.dx, widen(before), write), 1500);
          expect_close(d_gamma, delivered(naive.d_gamma, widen(small), write), 1500);
          expect_close(d_beta, delivered(naive.d_beta, widen(small), write), 40);
        }
      }
    }
  });
}

TYPED_TEST(BatchNormTest, RunningStatisticsPassOverWhatIsNotFinite) {
  using T = TypeParam;
  Values<T> running = {1, 2, 3};
  const Values<T> batch = {3, std::numeric_limits<T>::quiet_NaN(),
                           std::numeric_limits<T>::infinity()};
  kernels::update_running(TestDevice{}, 0.25, 2.0, batch.data(), running.data(), int64_t{3});
  EXPECT_EQ(running, (Values<T>{2.25, 2, 3}));
}

TYPED_TEST(BatchNormTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const BatchNormData<T> data(1700, 65);
  expect_same_for_any_threads([&] {
    const NormedBatch<T> forward(data);
    Values<T> out(data.x.size() + 2 * 65);
    kernels::batch_norm_backward(
        TestDevice{}, {data.rows, data.cols, kBatchNormEps},
        BatchNormBackward<T>{data.x.data(), forward.mean.data(), forward.variance.data(),
                             data.gamma.data(), data.dy.data(), out.data(), Write::kSet,
                             out.data() + data.x.size(), Write::kSet,
                             out.data() + data.x.size() + 65, Write::kSet});
    for (const auto* part : {&forward.mean, &forward.variance, &forward.y}) {
      out.insert(out.end(), part->begin(), part->end());
    }
    return out;
  });
}

}  // namespace
}  // namespace tapestry
