#include "core/kernels/attention/rope.h"
#include "core/kernels/batch_norm.h"
#include "core/kernels/elementwise/activation_functors.h"
#include "core/kernels/elementwise/glu.h"
#include "core/kernels/elementwise/unary.h"
#include "core/kernels/softmax.h"
#include "tests/core/kernels/bfloat16_values.h"

namespace tapestry {
namespace {

// Rows in packs and not, of a warp and of a block.
TEST(SoftmaxBFloat16, EqualsTheDefinition) {
  on_every_target([] {
    for (const int64_t cols : {40, 33, 1032}) {
      const int64_t rows = 9, n = rows * cols;
      const auto x = random_values<BFloat16>(n, 1, -4, 4), dy = random_values<BFloat16>(n, 2);
      const std::vector<double> wide = to_doubles(x), g = to_doubles(dy);
      std::vector<double> expected(n), log_expected(n);
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; ++i) sum += std::exp(wide[i]);
        for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
          expected[i] = std::exp(wide[i]) / sum;
          log_expected[i] = wide[i] - std::log(sum);
        }
      }
      Values<BFloat16> y(n), log_y(n);
      kernels::softmax(TestDevice{}, x.data(), y.data(), rows, cols);
      expect_rounded(y, expected);
      kernels::log_softmax(TestDevice{}, x.data(), log_y.data(), rows, cols);
      expect_rounded(log_y, log_expected);

      const std::vector<double> p = to_doubles(y), log_p = to_doubles(log_y);
      std::vector<double> dx(n), log_dx(n);
      for (int64_t r = 0; r < rows; ++r) {
        double dot = 0, sum = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; ++i) dot += p[i] * g[i], sum += g[i];
        for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
          dx[i] = p[i] * (g[i] - dot);
          log_dx[i] = g[i] - std::exp(log_p[i]) * sum;
        }
      }
      expect_delivered(dx, [&, cols = cols](BFloat16* out, Write write) {
        kernels::softmax_backward(TestDevice{}, y.data(), dy.data(), out, rows, cols, write);
      });
      expect_delivered(log_dx, [&, cols = cols](BFloat16* out, Write write) {
        kernels::log_softmax_backward(TestDevice{}, log_y.data(), dy.data(), out, rows, cols,
                                      write);
      });
    }
  });
}

TEST(GluBFloat16, EqualsTheScalarFunctor) {
  on_every_target([] {
    for (const int64_t cols : {40, 33}) {
      const int64_t rows = 5;
      const auto x = random_values<BFloat16>(rows * 2 * cols, 1);
      const auto dy = random_values<BFloat16>(rows * cols, 2);
      const std::vector<double> wide = to_doubles(x), g = to_doubles(dy);
      std::vector<double> expected, dx(wide.size());
      for (int64_t i = 0; i < rows * cols; ++i) {
        const int64_t a = i / cols * 2 * cols + i % cols, b = a + cols;
        expected.push_back(functors::Silu::f(wide[a]) * wide[b]);
        dx[a] = functors::Silu::df(wide[a]) * wide[b] * g[i];
        dx[b] = functors::Silu::f(wide[a]) * g[i];
      }
      Values<BFloat16> y(rows * cols);
      kernels::glu(TestDevice{}, Activation::kSilu, x.data(), y.data(), rows, cols);
      expect_rounded(y, expected);
      expect_delivered(dx, [&, cols = cols](BFloat16* out, Write write) {
        kernels::glu_backward(TestDevice{}, Activation::kSilu, x.data(), dy.data(), out, rows, cols,
                              write);
      });
    }
  });
}

// Two heads of 16 and of 6, and columns behind them.
TEST(RopeBFloat16, TurnsHeadsByFloatAngles) {
  on_every_target([] {
    for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
      for (const int64_t head_size : {16, 6}) {
        const int64_t half = head_size / 2;
        const RopeShape shape = {.rows = 6,
                                 .width = 2 * head_size + 8,
                                 .heads = 2,
                                 .head_size = head_size,
                                 .rotated = head_size,
                                 .length = 3,
                                 .position_offset = 1,
                                 .layout = layout};
        const auto x = random_values<BFloat16>(shape.rows * shape.width, 1);
        Values<float> table = random_values<float>(4 * head_size, 2, -1, 1);
        const std::vector<double> wide = to_doubles(x);
        std::vector<double> expected = wide;
        for (int64_t i = 0; i < shape.rows * 2 * half; ++i) {
          const int64_t row = i / head_size, head = i / half % 2, pair = i % half;
          const float* const angles = &table[(1 + row % 3) * head_size];
          const bool halves = layout == RopeLayout::kHalf;
          const int64_t first = row * shape.width + head * head_size + (halves ? pair : 2 * pair);
          const int64_t second = first + (halves ? half : 1);
          const double c = angles[pair], s = angles[half + pair];
          expected[first] = wide[first] * c - wide[second] * s;
          expected[second] = wide[second] * c + wide[first] * s;
        }
        expect_delivered(expected, [&](BFloat16* y, Write write) {
          kernels::rope(TestDevice{}, shape, x.data(), table.data(), y, write);
        });
      }
    }
  });
}

Values<float> to_floats(const Values<BFloat16>& values) {
  Values<float> wide;
  for (const BFloat16 v : values) wide.push_back(static_cast<float>(v));
  return wide;
}

// Other tests have the float kernel: here it is the reference.
TEST(UnaryBFloat16, RoundsTheFloatKernelOnce) {
  on_every_target([] {
    for (const int64_t n : {1, 33, 2000}) {
      const auto x = random_values<BFloat16>(n, 1, -4, 4), dy = random_values<BFloat16>(n, 2);
      const Values<float> wide = to_floats(x), wide_dy = to_floats(dy);
      for (const Activation f : {Activation::kGelu, Activation::kSilu, Activation::kRelu}) {
        Values<float> wide_y(n), slopes(n);
        Values<BFloat16> y(n);
        kernels::unary(TestDevice{}, f, wide.data(), wide_y.data(), n);
        kernels::unary(TestDevice{}, f, x.data(), y.data(), n);
        expect_rounded(y, widen(wide_y));
        wide_y = to_floats(y);
        kernels::unary_backward(TestDevice{}, f, wide.data(), wide_y.data(), wide_dy.data(),
                                slopes.data(), n, Write::kSet);
        expect_delivered(widen(slopes), [&](BFloat16* dx, Write write) {
          kernels::unary_backward(TestDevice{}, f, x.data(), y.data(), dy.data(), dx, n, write);
        });
      }
    }
  });
}

TEST(BatchNormBFloat16, RoundsTheFloatKernelOnce) {
  on_every_target([] {
    for (const int64_t cols : {3, 33, 512}) {
      const int64_t rows = 40, n = rows * cols;
      const BatchNormShape shape{rows, cols, 1e-3};
      const auto x = random_values<BFloat16>(n, 1), dy = random_values<BFloat16>(n, 2);
      const auto gamma = random_values<BFloat16>(cols, 3), beta = random_values<BFloat16>(cols, 4);
      const Values<float> wide = to_floats(x), wide_dy = to_floats(dy);
      const Values<float> wide_gamma = to_floats(gamma), wide_beta = to_floats(beta);
      Values<float> mean(cols), variance(cols), same_mean(cols), same_variance(cols), wide_y(n);
      kernels::column_moments(TestDevice{}, rows, cols, wide.data(), mean.data(), variance.data());
      kernels::column_moments(TestDevice{}, rows, cols, x.data(), same_mean.data(),
                              same_variance.data());
      expect_close(same_mean, widen(mean), 10);
      expect_close(same_variance, widen(variance), 10);
      Values<BFloat16> y(n);
      const auto forward = [&](auto type, const auto& in, const auto& g, const auto& b, auto& out) {
        kernels::batch_norm(
            TestDevice{}, shape,
            BatchNormForward<decltype(type)>{in.data(), mean.data(), variance.data(), g.data(),
                                             b.data(), out.data()});
      };
      forward(float{}, wide, wide_gamma, wide_beta, wide_y);
      forward(BFloat16{}, x, gamma, beta, y);
      expect_rounded(y, widen(wide_y));

      const auto backward = [&](const auto& in, const auto& g, const auto& out, auto* dx,
                                auto* d_gamma, auto* d_beta, Write write) {
        using T = std::remove_pointer_t<decltype(dx)>;
        BatchNormBackward<T> args = {};
        args.x = in.data(), args.mean = mean.data(), args.variance = variance.data();
        args.gamma = g.data(), args.dy = out.data();
        args.dx = dx, args.d_gamma = d_gamma, args.d_beta = d_beta;
        args.dx_write = args.d_gamma_write = args.d_beta_write = write;
        kernels::batch_norm_backward(TestDevice{}, shape, args);
      };
      Values<float> dx(n), d_gamma(cols), d_beta(cols);
      backward(wide, wide_gamma, wide_dy, dx.data(), d_gamma.data(), d_beta.data(), Write::kSet);
      for (const Write write : kBothWrites) {
        const auto before = random_values<BFloat16>(n, 5), few = random_values<BFloat16>(cols, 6);
        Values<BFloat16> to_x = before, to_gamma = few, to_beta = few;
        backward(x, gamma, dy, to_x.data(), to_gamma.data(), to_beta.data(), write);
        expect_rounded(to_x, delivered(widen(dx), widen(before), write));
        expect_rounded(to_gamma, delivered(widen(d_gamma), widen(few), write));
        expect_rounded(to_beta, delivered(widen(d_beta), widen(few), write));
      }
    }
  });
}

}  // namespace
}  // namespace tapestry
