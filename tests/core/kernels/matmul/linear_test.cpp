#include "core/kernels/matmul/linear.h"

#include "core/kernels/elementwise/activation_functors.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

double activate(Activation activation, double z) {
  return with_functor(activation, [&](auto functor) { return functor.f(z); });
}

double activation_slope(Activation activation, double z, double y) {
  return with_functor(activation, [&](auto functor) {
    return functor.df(functor.kNeeds == functors::Needs::kOutput ? y : z);
  });
}

template <class T>
struct Layer {
  Layer(const LinearShape& shape_in, bool with_bias) : shape(shape_in) {
    x = random_values<T>(shape.rows * shape.in, 1, -1, 1);
    weight = random_values<T>(shape.out * shape.in, 2, -1, 1);
    if (with_bias) bias = random_values<T>(shape.out, 3, -1, 1);
    z.assign(shape.rows * shape.out, T{0});
    y = z;
  }

  void forward(bool keep_z) {
    kernels::linear<T>(TestDevice{}, shape,
                       {x.data(), weight.data(), bias.empty() ? nullptr : bias.data(),
                        keep_z ? z.data() : nullptr, y.data()});
  }

  // By three loops.
  std::vector<double> expected_z() const {
    std::vector<double> result(static_cast<size_t>(shape.rows * shape.out));
    for (int64_t r = 0; r < shape.rows; ++r) {
      for (int64_t o = 0; o < shape.out; ++o) {
        double sum = bias.empty() ? 0 : as_double(bias[o]);
        for (int64_t i = 0; i < shape.in; ++i) {
          sum += as_double(x[r * shape.in + i]) * as_double(weight[o * shape.in + i]);
        }
        result[r * shape.out + o] = sum;
      }
    }
    return result;
  }

  LinearShape shape;
  Values<T> x, weight, bias, z, y;
};

std::vector<LinearShape> shapes() {
  std::vector<LinearShape> all;
  for (const int64_t size : {1, 31, 33, 257}) {
    all.push_back({size, 33, 31});
    all.push_back({33, size, 17});
    all.push_back({5, 40, size});
  }
  all.push_back({700, 60, 300});
  return all;
}

std::string describe(const LinearShape& s) {
  return concat(s.rows, 'x', s.in, " -> ", s.out, " activation ", name_of(s.activation));
}

template <class T>
class LinearTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(LinearTest, DeviceTypes);

// Roundings of a sum. For BFloat16, those of a product's inputs (dz, as large as the slope) add up
// like a random walk; its sums are float.
template <class T>
double units_of(int64_t terms, double slope = 1) {
  const double n = static_cast<double>(terms);
  return std::is_same_v<T, BFloat16> ? 2 + 0.3 * slope * std::sqrt(n) : 8 + 0.5 * slope * n;
}

// Root mean square, at least 1.
template <class T>
double usual_slope(const Layer<T>& layer) {
  double squares = 0;
  const auto count = static_cast<double>(layer.z.size());
  for (size_t i = 0; i < layer.z.size(); ++i) {
    const double slope =
        activation_slope(layer.shape.activation, as_double(layer.z[i]), as_double(layer.y[i]));
    squares += slope * slope;
  }
  return std::max(1.0, std::sqrt(squares / count));
}

TYPED_TEST(LinearTest, ForwardEqualsThreeLoops) {
  using T = TypeParam;
  on_every_target([] {
    for (LinearShape shape : shapes()) {
      for (const Activation activation : kActivations) {
        for (const bool with_bias : {false, true}) {
          shape.activation = activation;
          SCOPED_TRACE(describe(shape) + (with_bias ? " with bias" : ""));
          Layer<T> layer(shape, with_bias);
          const std::vector<double> z = layer.expected_z();
          std::vector<double> y;
          for (const double value : z) y.push_back(activate(activation, value));
          // 1.6e-2 in BFloat16: the result's rounding, and the activation's of a rounded z. A
          // square has twice the relative error of z, and its own rounding.
          const double in = static_cast<double>(shape.in);
          const double units = std::is_same_v<T, BFloat16> ? 2 : 4 + 0.5 * in;
          const double of_y = activation == Activation::kRelu2 ? 3 * units : units;
          layer.forward(/*keep_z=*/true);
          expect_close(layer.z, z, units);
          expect_close(layer.y, y, of_y);
          const Values<T> kept = layer.y;
          layer.forward(/*keep_z=*/false);
          expect_same(layer.y, kept, of_y);
        }
      }
    }
  });
}

template <class Array>
struct Gradients {
  Array dx, d_weight, d_bias;
};

// From the layer's own z and y (in double), so that only backward is under test.
template <class T>
Gradients<std::vector<double>> expected_gradients(const Layer<T>& layer, const Values<T>& dy) {
  const auto [rows, in, out, activation, precision] = layer.shape;
  Gradients<std::vector<double>> g{std::vector<double>(rows * in), std::vector<double>(out * in),
                                   std::vector<double>(out)};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      const int64_t at = r * out + o;
      const double dz = as_double(dy[at]) * activation_slope(activation, as_double(layer.z[at]),
                                                             as_double(layer.y[at]));
      g.d_bias[o] += dz;
      for (int64_t i = 0; i < in; ++i) {
        g.dx[r * in + i] += dz * as_double(layer.weight[o * in + i]);
        g.d_weight[o * in + i] += dz * as_double(layer.x[r * in + i]);
      }
    }
  }
  return g;
}

// Passes z and y only if linear.h says that they are read.
template <class T>
LinearBackward<T> backward_of(const Layer<T>& layer, const Values<T>& dy) {
  const functors::Needs needs = derivative_needs(layer.shape.activation);
  LinearBackward<T> args{};
  args.x = layer.x.data();
  args.weight = layer.weight.data();
  args.z = needs == functors::Needs::kInput ? layer.z.data() : nullptr;
  args.y = needs == functors::Needs::kOutput ? layer.y.data() : nullptr;
  args.dy = dy.data();
  return args;
}

TYPED_TEST(LinearTest, BackwardEqualsThreeLoops) {
  using T = TypeParam;
  on_every_target([] {
    for (LinearShape shape : shapes()) {
      for (const Activation activation : kActivations) {
        shape.activation = activation;
        SCOPED_TRACE(describe(shape));
        Layer<T> layer(shape, true);
        layer.forward(/*keep_z=*/true);
        const auto dy = random_values<T>(shape.rows * shape.out, 7, -1, 1);
        const Gradients<std::vector<double>> expected = expected_gradients(layer, dy);
        const double slope = usual_slope(layer);
        for (const Write write : kBothWrites) {
          const Gradients<Values<T>> before{random_values<T>(shape.rows * shape.in, 8),
                                            random_values<T>(shape.out * shape.in, 9),
                                            random_values<T>(shape.out, 10)};
          Gradients<Values<T>> got = before;
          LinearBackward<T> args = backward_of(layer, dy);
          args.dx = got.dx.data(), args.d_weight = got.d_weight.data();
          args.d_bias = got.d_bias.data();
          args.dx_write = args.d_weight_write = args.d_bias_write = write;
          kernels::linear_backward(TestDevice{}, shape, args);
          expect_close(got.dx, delivered(expected.dx, widen(before.dx), write),
                       units_of<T>(shape.out, slope));
          expect_close(got.d_weight, delivered(expected.d_weight, widen(before.d_weight), write),
                       units_of<T>(shape.rows, slope));
          expect_close(got.d_bias, delivered(expected.d_bias, widen(before.d_bias), write),
                       units_of<T>(shape.rows, slope));
        }
      }
    }
  });
}

// A part of a longer vector may begin anywhere, while a GPU's library wants 16 bytes.
TYPED_TEST(LinearTest, BiasAndItsGradientMayBeginAnywhere) {
  using T = TypeParam;
  constexpr int64_t kOut = 24;
  for (const Activation activation : {Activation::kNone, Activation::kGeluTanh}) {
    Layer<T> layer({40, 32, kOut, activation}, true);
    layer.forward(/*keep_z=*/true);
    const auto dy = random_values<T>(40 * kOut, 7, -1, 1);
    LinearBackward<T> args = backward_of(layer, dy);
    Gradients<Values<T>> expected{{}, Values<T>(kOut * 32), Values<T>(kOut)};
    args.d_weight = expected.d_weight.data(), args.d_bias = expected.d_bias.data();
    kernels::linear_backward(TestDevice{}, layer.shape, args);
    for (const int64_t first : {1, 3, 4}) {
      SCOPED_TRACE(first);
      Values<T> bias(first + kOut), y = layer.y, d_bias(first + kOut);
      std::copy(layer.bias.begin(), layer.bias.end(), bias.begin() + first);
      kernels::linear<T>(
          TestDevice{}, layer.shape,
          {layer.x.data(), layer.weight.data(), bias.data() + first, nullptr, y.data()});
      expect_close(y, widen(layer.y), std::is_same_v<T, BFloat16> ? 2 : 20);
      Values<T> d_weight(kOut * 32);
      args.d_weight = d_weight.data(), args.d_bias = d_bias.data() + first;
      kernels::linear_backward(TestDevice{}, layer.shape, args);
      expect_close(d_weight, widen(expected.d_weight), units_of<T>(40));
      expect_close(Values<T>(d_bias.begin() + first, d_bias.end()), widen(expected.d_bias),
                   units_of<T>(40));
    }
  }
}

TYPED_TEST(LinearTest, BackwardComputesOnlyWhatIsAsked) {
  using T = TypeParam;
  for (const Activation activation : {Activation::kNone, Activation::kSilu}) {
    Layer<T> layer({40, 30, 20, activation}, true);
    layer.forward(true);
    const auto dy = random_values<T>(40 * 20, 7);
    LinearBackward<T> args = backward_of(layer, dy);
    Gradients<Values<T>> all{Values<T>(40 * 30), Values<T>(20 * 30), Values<T>(20)};
    args.dx = all.dx.data(), args.d_weight = all.d_weight.data(), args.d_bias = all.d_bias.data();
    kernels::linear_backward(TestDevice{}, layer.shape, args);
    for (int wanted = 0; wanted < 3; ++wanted) {
      Gradients<Values<T>> one{Values<T>(40 * 30), Values<T>(20 * 30), Values<T>(20)};
      args.dx = wanted == 0 ? one.dx.data() : nullptr;
      args.d_weight = wanted == 1 ? one.d_weight.data() : nullptr;
      args.d_bias = wanted == 2 ? one.d_bias.data() : nullptr;
      kernels::linear_backward(TestDevice{}, layer.shape, args);
      const Gradients<Values<T>> nothing{Values<T>(40 * 30), Values<T>(20 * 30), Values<T>(20)};
      expect_same(one.dx, wanted == 0 ? all.dx : nothing.dx, units_of<T>(20));
      expect_same(one.d_weight, wanted == 1 ? all.d_weight : nothing.d_weight, units_of<T>(40));
      expect_same(one.d_bias, wanted == 2 ? all.d_bias : nothing.d_bias, units_of<T>(40));
    }
  }
}

TYPED_TEST(LinearTest, EmptySizes) {
  using T = TypeParam;
  Layer<T> none({0, 4, 3, Activation::kRelu}, true);
  none.forward(true);
  Gradients<Values<T>> g{{}, Values<T>(12, T{5}), Values<T>(3, T{5})};
  LinearBackward<T> args = backward_of(none, Values<T>{});
  args.d_weight = g.d_weight.data(), args.d_bias = g.d_bias.data();
  args.d_weight_write = args.d_bias_write = Write::kAdd;
  kernels::linear_backward(TestDevice{}, none.shape, args);
  EXPECT_EQ(g.d_weight, Values<T>(12, T{5}));
  args.d_weight_write = args.d_bias_write = Write::kSet;
  kernels::linear_backward(TestDevice{}, none.shape, args);
  EXPECT_EQ(g.d_weight, Values<T>(12, T{0}));
  EXPECT_EQ(g.d_bias, Values<T>(3, T{0}));

  Layer<T> biased({2, 0, 3, Activation::kNone}, true);  // no inputs: the bias alone
  biased.forward(false);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(biased.y[i], biased.bias[i % 3]);
}

TYPED_TEST(LinearTest, BitsDoNotDependOnThreads) {
  using T = TypeParam;
  for (const LinearShape& shape : {LinearShape{1000, 64, 96, Activation::kGelu},
                                   LinearShape{3000, 32, 32, Activation::kNone}}) {
    expect_same_for_any_threads([&] {
      Layer<T> layer(shape, true);
      layer.forward(true);
      Gradients<Values<T>> g{Values<T>(shape.rows * shape.in), Values<T>(shape.out * shape.in),
                             Values<T>(shape.out)};
      const auto dy = random_values<T>(shape.rows * shape.out, 7);
      LinearBackward<T> args = backward_of(layer, dy);
      args.dx = g.dx.data(), args.d_weight = g.d_weight.data(), args.d_bias = g.d_bias.data();
      kernels::linear_backward(TestDevice{}, shape, args);
      Values<T> all = layer.y;
      for (const auto& part : {g.dx, g.d_weight, g.d_bias}) {
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace tapestry
