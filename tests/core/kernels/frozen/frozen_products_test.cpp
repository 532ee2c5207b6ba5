// Products with a frozen matrix, against the same kernels with its numbers in memory.
#include "core/kernels/cross_entropy.h"
#include "core/kernels/frozen/frozen_matrix.h"
#include "core/kernels/matmul/linear.h"
#include "tests/core/kernels/frozen/frozen_formats.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

template <class T>
struct Weights {
  Weights(WeightFormat format, int64_t rows, int64_t cols)
      : frozen(format, rows, cols), dense(rows * cols) {
    frozen.store(0, rows, random_values<float>(rows * cols, 2).data());
    frozen.read({0, rows}, {0, cols}, dense.data(), cols);
  }
  FrozenMatrix frozen;
  std::vector<T> dense;
};

// Both sum the same products, in an order that may differ.
template <class T>
void expect_near(const Values<T>& a, const Values<T>& b, double terms) {
  const double unit = std::is_same_v<T, double> ? 1e-16 : std::is_same_v<T, float> ? 1e-7 : 8e-3;
  double size = 1e-3;
  for (const T value : b) size = std::max(size, std::abs(as_double(value)));
  for (size_t i = 0; i < b.size(); ++i) {
    ASSERT_NEAR(as_double(a[i]), as_double(b[i]), unit * size * (2 + std::sqrt(terms))) << i;
  }
}

template <class T>
struct Layer {
  explicit Layer(const LinearShape& shape)
      : shape(shape),
        x(random_values<T>(shape.rows * shape.in, 1)),
        bias(random_values<T>(shape.out, 3)),
        dy(random_values<T>(shape.rows * shape.out, 4)),
        z(shape.rows * shape.out),
        y(z),
        dx(random_values<T>(shape.rows * shape.in, 5)),
        d_bias(shape.out) {}

  void run(const T* dense, const FrozenMatrix* frozen, Write write) {
    kernels::linear<T>(Cpu{}, shape, {x.data(), dense, bias.data(), z.data(), y.data(), frozen});
    LinearBackward<T> args{};
    args.weight = dense, args.frozen = frozen;
    args.z = z.data(), args.y = y.data(), args.dy = dy.data();
    args.dx = dx.data(), args.dx_write = write;
    args.d_bias = d_bias.data(), args.d_bias_write = Write::kSet;
    kernels::linear_backward<T>(Cpu{}, shape, args);
  }

  LinearShape shape;
  Values<T> x, bias, dy, z, y, dx, d_bias;
};

template <class T>
class FrozenProducts : public testing::Test {};
using Types = testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(FrozenProducts, Types);

TYPED_TEST(FrozenProducts, OfADenseLayer) {
  using T = TypeParam;
  for (const LinearShape& shape :
       {LinearShape{1, 1, 1}, LinearShape{3, 33, 31}, LinearShape{257, 64, 129, Activation::kGelu},
        LinearShape{33, 600, 70, Activation::kSilu}, LinearShape{40, 1030, 300},
        LinearShape{1030, 40, 50},
        // Deeper than a piece that is widened or packed at a time.
        LinearShape{9, 4200, 700}, LinearShape{9, 700, 4200}}) {
    for (const WeightFormat format : kFrozenFormats) {
      for (const Write write : {Write::kSet, Write::kAdd}) {
        SCOPED_TRACE(concat(shape.rows, 'x', shape.in, " -> ", shape.out, ' ', name_of(format)));
        const Weights<T> w(format, shape.out, shape.in);
        Layer<T> plain(shape), layer(shape);
        plain.run(w.dense.data(), nullptr, write);
        layer.run(nullptr, &w.frozen, write);
        expect_near(layer.z, plain.z, static_cast<double>(shape.in));
        expect_near(layer.y, plain.y, static_cast<double>(shape.in));
        expect_near(layer.dx, plain.dx, static_cast<double>(shape.out));
        expect_near(layer.d_bias, plain.d_bias, static_cast<double>(shape.rows));
      }
    }
  }
}

TYPED_TEST(FrozenProducts, AreTheSameForAnyThreads) {
  const LinearShape shape{70, 160, 290};
  for (const WeightFormat format : kFrozenFormats) {
    const Weights<TypeParam> w(format, shape.out, shape.in);
    expect_same_for_any_threads([&] {
      Layer<TypeParam> layer(shape);
      layer.run(nullptr, &w.frozen, Write::kAdd);
      Values<TypeParam> all = layer.y;
      all.insert(all.end(), layer.dx.begin(), layer.dx.end());
      return all;
    });
  }
}

TYPED_TEST(FrozenProducts, OfAClassifierWithItsLoss) {
  using T = TypeParam;
  for (const int64_t rows : {3, 150}) {
    const int64_t in = 72, classes = 700;
    for (const WeightFormat format : kFrozenFormats) {
      SCOPED_TRACE(concat(rows, " rows, ", name_of(format)));
      const Weights<T> w(format, classes, in);
      const Values<T> x = random_values<T>(rows * in, 1), bias = random_values<T>(classes, 3);
      std::vector<int32_t> targets;
      for (int64_t r = 0; r < rows; ++r) {
        targets.push_back(r % 5 == 2 ? -1 : static_cast<int32_t>(37 * r % classes));
      }
      const auto run = [&](const T* dense, const FrozenMatrix* frozen, Values<T>& dx) {
        LinearCrossEntropy<T> args;
        args.in = in, args.x = x.data(), args.weight = dense, args.frozen = frozen;
        args.bias = bias.data(), args.targets = {targets.data()}, args.grad_scale = 0.25;
        args.dx = dx.data();
        CrossEntropySums sums;
        CrossEntropyShape shape{rows, classes, 0.1};
        shape.softcap = 5;
        kernels::linear_cross_entropy(Cpu{}, shape, args, &sums);
        return sums;
      };
      Values<T> plain(rows * in), dx(rows * in);
      const CrossEntropySums expected = run(w.dense.data(), nullptr, plain);
      const CrossEntropySums sums = run(nullptr, &w.frozen, dx);
      const double tolerance = std::is_same_v<T, double> ? 1e-12 : 1e-4;
      EXPECT_NEAR(sums.loss, expected.loss, tolerance * expected.loss);
      EXPECT_NEAR(sums.nll, expected.nll, tolerance * expected.nll);
      expect_near(dx, plain, static_cast<double>(classes));
    }
  }
}

// On AMX float32 in three products of bfloat16, where this processor has it.
TEST(FrozenProducts, InThreeProducts) {
  if (!why_no_bf16x3(bfloat16_kernel()).empty()) GTEST_SKIP() << why_no_bf16x3(bfloat16_kernel());
  LinearShape shape{100, 300, 130};
  shape.precision = Precision::kBf16x3;
  for (const WeightFormat format : kFrozenFormats) {
    const Weights<float> w(format, shape.out, shape.in);
    Layer<float> plain(shape), layer(shape);
    plain.run(w.dense.data(), nullptr, Write::kSet);
    layer.run(nullptr, &w.frozen, Write::kSet);
    EXPECT_EQ(layer.y, plain.y);
    EXPECT_EQ(layer.dx, plain.dx);
  }
}

}  // namespace
}  // namespace tapestry
