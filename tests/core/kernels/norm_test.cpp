#include "core/kernels/norm.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr int64_t kCols[] = {1, 31, 33, 257};
constexpr double kEps = 1e-3;

struct Options {
  NormKind kind;
  bool residual, beta;
  float p;
};

const Options kOptions[] = {
    {NormKind::kLayer, false, true, 0},    {NormKind::kLayer, true, true, 0},
    {NormKind::kLayer, true, false, 0.3f}, {NormKind::kRms, false, false, 0},
    {NormKind::kRms, true, false, 0.5f},   {NormKind::kRms, true, true, 0}};

Dropout dropout_of(const Options& options) { return {options.p, {11, 12, 13}}; }

// norm(residual + dropout(x)) and what it saves for backward.
struct Naive {
  std::vector<double> sum, y, mean, rstd, xhat;

  Naive(const Options& options, int64_t rows, int64_t cols, const std::vector<double>& x,
        const std::vector<double>& residual, const std::vector<double>& gamma,
        const std::vector<double>& beta)
      : sum(x), y(x), mean(rows), rstd(rows), xhat(x) {
    for (int64_t i = 0; i < rows * cols && options.residual; ++i) {
      sum[i] = residual[i] + x[i] * dropout_factor(dropout_of(options), i);
    }
    for (int64_t r = 0; r < rows; ++r) {
      long double total = 0, square = 0;
      for (int64_t c = 0; c < cols; ++c) total += sum[r * cols + c];
      const long double exact = options.kind == NormKind::kLayer ? total / cols : 0;
      for (int64_t c = 0; c < cols; ++c) square += std::pow(sum[r * cols + c] - exact, 2) / cols;
      mean[r] = static_cast<double>(exact);
      rstd[r] = static_cast<double>(1 / std::sqrt(square + kEps));
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t i = r * cols + c;
        xhat[i] = static_cast<double>((sum[i] - exact) * rstd[r]);
        y[i] = xhat[i] * gamma[c] + (options.beta ? beta[c] : 0);
      }
    }
  }
};

template <class T>
struct Data {
  int64_t rows, cols;
  Values<T> x, residual, gamma, beta, dy, dsum;

  Data(int64_t rows, int64_t cols)
      : rows(rows),
        cols(cols),
        x(random_values<T>(rows * cols, 1)),
        residual(random_values<T>(rows * cols, 2)),
        gamma(random_values<T>(cols, 3, 0.5, 2)),
        beta(random_values<T>(cols, 4)),
        dy(random_values<T>(rows * cols, 5)),
        dsum(random_values<T>(rows * cols, 6)) {}

  Naive naive(const Options& options) const {
    return Naive(options, rows, cols, widen(x), widen(residual), widen(gamma), widen(beta));
  }
};

template <class T>
struct Forward {
  Values<T> sum, y;
  Values<Wider<T>> mean, rstd;

  Forward(const Options& options, const Data<T>& data)
      : sum(data.x.size()), y(data.x.size()), mean(data.rows), rstd(data.rows) {
    NormForward<T> args = {};
    args.x = data.x.data();
    args.residual = options.residual ? data.residual.data() : nullptr;
    args.dropout = dropout_of(options);
    args.gamma = data.gamma.data();
    args.beta = options.beta ? data.beta.data() : nullptr;
    args.sum = options.residual ? sum.data() : nullptr;
    args.y = y.data();
    args.mean = options.kind == NormKind::kLayer ? mean.data() : nullptr;
    args.rstd = rstd.data();
    kernels::norm(TestDevice{}, {options.kind, data.rows, data.cols, kEps}, args);
    if (!options.residual) sum = data.x;
  }
};

template <class T>
class NormTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(NormTest, FloatingTypes);

TYPED_TEST(NormTest, EqualsTheDefinition) {
  using T = TypeParam;
  on_every_target([] {
    for (const Options& options : kOptions) {
      for (const int64_t cols : kCols) {
        SCOPED_TRACE(cols);
        const Data<T> data(7, cols);
        const Naive expected = data.naive(options);
        const Forward<T> actual(options, data);
        expect_close(actual.sum, expected.sum, 3);
        expect_close(actual.y, expected.y,
                     400);  // one column: x - mean cancels, 1 / sqrt(eps) = 32
        expect_close(actual.rstd, expected.rstd, 40);
        if (options.kind == NormKind::kLayer) expect_close(actual.mean, expected.mean, 8);
      }
    }
  });
}

// Rows of a warp and of a block, to the last pack and beyond; long ones that cannot be read in
// packs.
TYPED_TEST(NormTest, WideRows) {
  using T = TypeParam;
  const Options options{NormKind::kLayer, true, true, 0.3f};
  for (const int64_t cols : {128, 384, 516, 768, 1030, 1536, 2048, 8200, 17000}) {
    SCOPED_TRACE(cols);
    const Data<T> data(2, cols);
    const Naive naive = data.naive(options);
    const Forward<T> forward(options, data);
    expect_close(forward.y, naive.y, 400);
    std::vector<double> dx, d_gamma(cols);
    for (int64_t r = 0; r < 2; ++r) {
      double g_mean = 0, gx_mean = 0;
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t i = r * cols + c;
        const double g = double(data.dy[i]) * data.gamma[c];
        g_mean += g / cols;
        gx_mean += g * naive.xhat[i] / cols;
        d_gamma[c] += data.dy[i] * naive.xhat[i];
      }
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t i = r * cols + c;
        const double g = double(data.dy[i]) * data.gamma[c];
        dx.push_back(naive.rstd[r] * (g - g_mean - naive.xhat[i] * gx_mean) *
                     dropout_factor(dropout_of(options), i));
      }
    }
    Values<T> out(data.x.size()), out_gamma(cols);
    NormBackward<T> args = {};
    args.sum = forward.sum.data();
    args.gamma = data.gamma.data();
    args.mean = forward.mean.data();
    args.rstd = forward.rstd.data();
    args.dy = data.dy.data();
    args.dropout = dropout_of(options);
    args.dx = out.data();
    args.d_gamma = out_gamma.data();
    kernels::norm_backward(TestDevice{}, {options.kind, 2, cols, kEps}, args);
    expect_close(out, dx, 400);
    expect_close(out_gamma, d_gamma, 400);
  }
}

// Kernel and backward use the rounded sum, so the reference starts from it too.
TEST(NormBFloat16Test, EqualsTheDefinition) {
  on_every_target([] {
    using T = BFloat16;
    for (const Options& options : kOptions) {
      for (const int64_t cols : {31, 256, 768, 1056, 1536, 4096}) {
        SCOPED_TRACE(cols);
        const int64_t rows = 31;  // more than blocks at once, in the emulation
        const Data<T> data(rows, cols);
        const Forward<T> forward(options, data);
        expect_close(forward.sum, data.naive(options).sum, 2);
        const Options plain{options.kind, false, options.beta, 0};
        const Naive naive(plain, rows, cols, widen(forward.sum), {}, widen(data.gamma),
                          widen(data.beta));
        expect_close(forward.y, naive.y, 2);
        expect_close(forward.rstd, naive.rstd, 40);
        std::vector<double> ds, dx, d_gamma(cols), d_beta(cols);
        for (int64_t r = 0; r < rows; ++r) {
          double g_mean = 0, gx_mean = 0;
          const auto g = [&](int64_t c) {
            return as_double(data.dy[r * cols + c]) * as_double(data.gamma[c]);
          };
          for (int64_t c = 0; c < cols; ++c) {
            const int64_t i = r * cols + c;
            if (options.kind == NormKind::kLayer) g_mean += g(c) / cols;
            gx_mean += g(c) * naive.xhat[i] / cols;
            d_gamma[c] += as_double(data.dy[i]) * naive.xhat[i];
            d_beta[c] += as_double(data.dy[i]);
          }
          for (int64_t c = 0; c < cols; ++c) {
            const int64_t i = r * cols + c;
            ds.push_back(naive.rstd[r] * (g(c) - g_mean - naive.xhat[i] * gx_mean) +
                         as_double(data.dsum[i]));
            dx.push_back(ds.back() * dropout_factor(dropout_of(options), i));
          }
        }
        for (const Write write : kBothWrites) {
          const Values<T> before = random_values<T>(rows * cols, 7);
          const Values<T> small = random_values<T>(cols, 8);
          Values<T> out_x = before, out_residual = before, out_gamma = small, out_beta = small;
          NormBackward<T> args = {};
          args.sum = forward.sum.data();
          args.gamma = data.gamma.data();
          args.mean = options.kind == NormKind::kLayer ? forward.mean.data() : nullptr;
          args.rstd = forward.rstd.data();
          args.dy = data.dy.data();
          args.dsum = data.dsum.data();
          args.dropout = dropout_of(options);
          args.dx = out_x.data();
          args.d_residual = out_residual.data();
          args.d_gamma = out_gamma.data();
          args.d_beta = out_beta.data();
          args.dx_write = args.d_residual_write = args.d_gamma_write = args.d_beta_write = write;
          kernels::norm_backward(TestDevice{}, {options.kind, rows, cols, kEps}, args);
          expect_close(out_x, delivered(dx, widen(before), write), 2);
          expect_close(out_residual, delivered(ds, widen(before), write), 2);
          expect_close(out_gamma, delivered(d_gamma, widen(small), write), 2);
          expect_close(out_beta, delivered(d_beta, widen(small), write), 2);
        }
      }
    }
  });
}

// A large common offset must not cost the digits of the variance.
TYPED_TEST(NormTest, VarianceSurvivesALargeMean) {
  using T = TypeParam;
  on_every_target([] {
    Data<T> data(3, 257);
    for (T& v : data.x) v = std::round(v * 8) / 8 + 1024;  // exact in float
    const Options options{NormKind::kLayer, false, true, 0};
    expect_close(Forward<T>(options, data).y, data.naive(options).y, 1500);
  });
}

TYPED_TEST(NormTest, WithoutSumTheResidualStillCounts) {
  using T = TypeParam;
  const Options options{NormKind::kLayer, true, true, 0.3f};
  const Data<T> data(5, 33);
  Values<T> y(data.x.size()), rstd(5), mean(5);
  NormForward<T> args = {data.x.data(),     data.residual.data(), dropout_of(options),
                         data.gamma.data(), data.beta.data(),     nullptr,
                         y.data(),          mean.data(),          rstd.data()};
  kernels::norm(TestDevice{}, {options.kind, 5, 33, kEps}, args);
  EXPECT_EQ(y, Forward<T>(options, data).y);
}

// Every gradient by the chain rule written out with the full Jacobian of a row:
// d y_j / d s_i = gamma_j rstd ((i == j) - 1 / n - xhat_i xhat_j / n), without 1 / n for RMS.
TYPED_TEST(NormTest, BackwardIsTheJacobianProduct) {
  using T = TypeParam;
  on_every_target([] {
    for (const Options& options : kOptions) {
      for (const int64_t cols : kCols) {
        for (const int parts : {1, 2, 3}) {  // dy, dsum or both
          SCOPED_TRACE(cols);
          const int64_t rows = cols == 33 ? 40 : 5;
          const Data<T> data(rows, cols);
          const Naive naive = data.naive(options);
          const Forward<T> forward(options, data);
          std::vector<double> ds(data.x.size()), dx, d_gamma(cols), d_beta(cols);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t i = 0; i < cols; ++i) {
              const int64_t p = r * cols + i;
              if (parts & 2) ds[p] = data.dsum[p];
              for (int64_t j = 0; j < cols && (parts & 1); ++j) {
                const int64_t q = r * cols + j;
                const double common = options.kind == NormKind::kLayer ? 1.0 / cols : 0;
                ds[p] += data.dy[q] * data.gamma[j] * naive.rstd[r] *
                         ((i == j) - common - naive.xhat[p] * naive.xhat[q] / cols);
              }
              dx.push_back(ds[p] * dropout_factor(dropout_of(options), p));
              if (parts & 1) d_gamma[i] += data.dy[p] * naive.xhat[p];
              if (parts & 1) d_beta[i] += data.dy[p];
            }
          }
          for (const Write write : kBothWrites) {
            const Values<T> before = random_values<T>(rows * cols, 7);
            const Values<T> small = random_values<T>(cols, 8);
            Values<T> out_x = before, out_residual = before, out_gamma = small, out_beta = small;
            NormBackward<T> args = {};
            args.sum = forward.sum.data();
            args.gamma = data.gamma.data();
            args.mean = options.kind == NormKind::kLayer ? forward.mean.data() : nullptr;
            args.rstd = forward.rstd.data();
            args.dy = parts & 1 ? data.dy.data() : nullptr;
            args.dsum = parts & 2 ? data.dsum.data() : nullptr;
            args.dropout = dropout_of(options);
            args.dx = out_x.data();
            args.d_residual = options.residual ? out_residual.data() : nullptr;
            args.d_gamma = out_gamma.data();
            args.d_beta = options.beta ? out_beta.data() : nullptr;
            args.dx_write = args.d_residual_write = args.d_gamma_write = args.d_beta_write = write;
            kernels::norm_backward(TestDevice{}, {options.kind, rows, cols, kEps}, args);
            expect_close(out_x, delivered(dx, widen(before), write), 1500);
            if (options.residual) {
              expect_close(out_residual, delivered(ds, widen(before), write), 1500);
            }
            expect_close(out_gamma, delivered(d_gamma, widen(small), write), 1500);
            if (options.beta) expect_close(out_beta, delivered(d_beta, widen(small), write), 20);
          }
        }
      }
    }
  });
}

TYPED_TEST(NormTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const Options options{NormKind::kLayer, true, true, 0.1f};
  const Data<T> data(700, 65);
  expect_same_for_any_threads([&] {
    const Forward<T> forward(options, data);
    Values<T> out(data.x.size() + 2 * 65);
    NormBackward<T> args = {};
    args.sum = forward.sum.data();
    args.gamma = data.gamma.data();
    args.mean = forward.mean.data();
    args.rstd = forward.rstd.data();
    args.dy = data.dy.data();
    args.dropout = dropout_of(options);
    args.dx = out.data();
    args.d_gamma = out.data() + data.x.size();
    args.d_beta = args.d_gamma + 65;
    kernels::norm_backward(TestDevice{}, {options.kind, 700, 65, kEps}, args);
    out.insert(out.end(), forward.y.begin(), forward.y.end());
    return out;
  });
}

}  // namespace
}  // namespace tapestry
