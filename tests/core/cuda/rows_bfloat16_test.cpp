#include "core/kernels/activation_functors.h"
#include "core/kernels/glu.h"
#include "core/kernels/rope.h"
#include "core/kernels/softmax.h"
#include "tests/core/cuda/bfloat16_values.h"

namespace tapestry {
namespace {

// Rows in packs and not, of a warp and of a block.
TEST(SoftmaxBFloat16, EqualsTheDefinition) {
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
    kernels::softmax(Cuda{}, x.data(), y.data(), rows, cols);
    expect_rounded(y, expected);
    kernels::log_softmax(Cuda{}, x.data(), log_y.data(), rows, cols);
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
      kernels::softmax_backward(Cuda{}, y.data(), dy.data(), out, rows, cols, write);
    });
    expect_delivered(log_dx, [&, cols = cols](BFloat16* out, Write write) {
      kernels::log_softmax_backward(Cuda{}, log_y.data(), dy.data(), out, rows, cols, write);
    });
  }
}

TEST(GluBFloat16, EqualsTheScalarFunctor) {
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
    kernels::glu(Cuda{}, Activation::kSilu, x.data(), y.data(), rows, cols);
    expect_rounded(y, expected);
    expect_delivered(dx, [&, cols = cols](BFloat16* out, Write write) {
      kernels::glu_backward(Cuda{}, Activation::kSilu, x.data(), dy.data(), out, rows, cols, write);
    });
  }
}

// Two heads of 16 and of 6, and columns behind them.
TEST(RopeBFloat16, TurnsHeadsByFloatAngles) {
  for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
    for (const int64_t head_size : {16, 6}) {
      const int64_t half = head_size / 2;
      const RopeShape shape = {.rows = 6,
                               .width = 2 * head_size + 8,
                               .heads = 2,
                               .head_size = head_size,
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
        kernels::rope(Cuda{}, shape, x.data(), table.data(), y, write);
      });
    }
  }
}

}  // namespace
}  // namespace tapestry
