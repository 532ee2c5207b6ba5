#include "core/kernels/unary.h"

#include "core/kernels/unary_functors.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  Unary f;
  const char* name;
  // In long double, so that the reference has digits to spare.
  long double (*value)(long double);
  long double (*slope)(long double);  // of the input or the output
  functors::Needs needs;
  double low, high;  // the range to test
};

template <class F>
Case make_case(Unary f, const char* name, double low, double high) {
  return {f, name, F::template f<long double>, F::template df<long double>, F::kNeeds, low, high};
}

std::vector<Case> all_cases() {
  return {make_case<functors::Relu>(Unary::kRelu, "relu", -3, 3),
          make_case<functors::Gelu>(Unary::kGelu, "gelu", -14, 14),
          make_case<functors::GeluTanh>(Unary::kGeluTanh, "gelu_tanh", -10, 10),
          make_case<functors::Silu>(Unary::kSilu, "silu", -80, 80),
          make_case<functors::Tanh>(Unary::kTanh, "tanh", -12, 12),
          make_case<functors::Sigmoid>(Unary::kSigmoid, "sigmoid", -80, 80),
          make_case<functors::Exp>(Unary::kExp, "exp", -80, 4),
          make_case<functors::Log>(Unary::kLog, "log", 1e-6, 50),
          make_case<functors::Sqrt>(Unary::kSqrt, "sqrt", 1e-3, 50)};
}

// Half of the points near 0, where cancellation would show.
template <class T>
Values<T> points(const Case& c, int64_t n) {
  Values<T> x = random_values<T>(n, 3, c.low, c.high);
  const Values<T> near = random_values<T>(n, 4, std::max(c.low, -1.0), 1);
  for (size_t i = 0; i < x.size(); i += 2) x[i] = near[i];
  return x;
}

template <class T>
class UnaryTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(UnaryTest, FloatingTypes);

TYPED_TEST(UnaryTest, EqualsTheScalarFunctor) {
  using T = TypeParam;
  on_every_target([] {
    for (const Case& c : all_cases()) {
      SCOPED_TRACE(c.name);
      for (const int64_t n : {1, 31, 33, 257, 2000}) {
        Values<T> x = points<T>(c, n), y(x.size());
        std::vector<double> expected;
        for (const T v : x) expected.push_back(static_cast<double>(c.value(v)));
        kernels::unary(TestDevice{}, c.f, x.data(), y.data(), n);
        expect_close(y, expected, 6);
        kernels::unary(TestDevice{}, c.f, x.data(), x.data(), n);
        EXPECT_EQ(x, y) << "in place";
      }
    }
  });
}

// The left tail of gelu is small, so absolute errors would hide there.
TEST(GeluTest, KeepsItsDigitsFarToTheLeft) {
  on_every_target([] {
    for (float x = -8; x < 0; x += 0.125f) {
      const Values<float> in = {x};
      Values<float> y(1);
      kernels::unary(TestDevice{}, Unary::kGelu, in.data(), y.data(), 1);
      EXPECT_NEAR(y[0] / functors::Gelu::f(static_cast<double>(x)), 1, 4e-6) << x;
    }
  });
}

TYPED_TEST(UnaryTest, BackwardEqualsTheScalarFunctor) {
  using T = TypeParam;
  on_every_target([] {
    for (const Case& c : all_cases()) {
      SCOPED_TRACE(c.name);
      for (const int64_t n : {1, 31, 33, 257}) {
        const Values<T> x = points<T>(c, n), dy = random_values<T>(n, 5);
        Values<T> y(x.size());
        kernels::unary(TestDevice{}, c.f, x.data(), y.data(), n);
        std::vector<double> slope;
        for (size_t i = 0; i < x.size(); ++i) {
          const double v = c.needs == functors::Needs::kOutput ? y[i] : x[i];
          slope.push_back(static_cast<double>(c.slope(v) * dy[i]));
        }
        // Activations do not need y; functions whose derivative follows from y do not need x.
        const T* const px = c.needs == functors::Needs::kOutput ? nullptr : x.data();
        const T* const py = c.needs == functors::Needs::kOutput ? y.data() : nullptr;
        for (const Write write : kBothWrites) {
          const Values<T> before = random_values<T>(n, 6);
          Values<T> dx = before;
          kernels::unary_backward(TestDevice{}, c.f, px, py, dy.data(), dx.data(), n, write);
          expect_close(dx, delivered(slope, widen(before), write), 20);
        }
        Values<T> dx(x.size()), in_place = dy;
        kernels::unary_backward(TestDevice{}, c.f, px, py, dy.data(), dx.data(), n, Write::kSet);
        kernels::unary_backward(TestDevice{}, c.f, px, py, in_place.data(), in_place.data(), n,
                                Write::kSet);
        EXPECT_EQ(dx, in_place);
      }
    }
  });
}

TYPED_TEST(UnaryTest, DerivativesAgreeWithFiniteDifferences) {
  for (const Case& c : all_cases()) {
    for (const double x : {0.3, 0.9, 1.7}) {
      const long double h = 1e-5L, numeric = (c.value(x + h) - c.value(x - h)) / (2 * h);
      const long double v = c.needs == functors::Needs::kOutput ? c.value(x) : x;
      EXPECT_NEAR(static_cast<double>(c.slope(v)), static_cast<double>(numeric),
                  1e-8 * (1 + std::abs(static_cast<double>(numeric))))
          << c.name;
    }
  }
}

TYPED_TEST(UnaryTest, ReluGradientFromTheOutputAlone) {
  using T = TypeParam;
  const Values<T> y = {0, 2, 0}, dy = {5, 6, 7};
  Values<T> dx(3);
  kernels::unary_backward<T>(TestDevice{}, Unary::kRelu, nullptr, y.data(), dy.data(), dx.data(), 3,
                             Write::kSet);
  EXPECT_EQ(dx, (Values<T>{0, 6, 0}));
}

TYPED_TEST(UnaryTest, SpecialValues) {
  using T = TypeParam;
  struct Special {
    Unary f;
    double x, y;
  };
  const Special specials[] = {
      {Unary::kExp, -kInf, 0},        {Unary::kExp, kInf, kInf},   {Unary::kExp, 2000, kInf},
      {Unary::kExp, -2000, 0},        {Unary::kExp, kNan, kNan},   {Unary::kLog, 0, -kInf},
      {Unary::kLog, -1, kNan},        {Unary::kLog, kInf, kInf},   {Unary::kLog, kNan, kNan},
      {Unary::kSqrt, -1, kNan},       {Unary::kSqrt, kInf, kInf},  {Unary::kSqrt, 0, 0},
      {Unary::kTanh, kInf, 1},        {Unary::kTanh, -kInf, -1},   {Unary::kTanh, kNan, kNan},
      {Unary::kSigmoid, kInf, 1},     {Unary::kSigmoid, -kInf, 0}, {Unary::kSigmoid, kNan, kNan},
      {Unary::kRelu, kNan, kNan},     {Unary::kRelu, -kInf, 0},    {Unary::kRelu, kInf, kInf},
      {Unary::kGelu, kNan, kNan},     {Unary::kGelu, kInf, kInf},  {Unary::kGelu, -40, 0},
      {Unary::kSilu, kNan, kNan},     {Unary::kSilu, kInf, kInf},  {Unary::kSilu, -2000, 0},
      {Unary::kGeluTanh, kNan, kNan}, {Unary::kGeluTanh, -40, 0}};
  on_every_target([&] {
    for (const Special& s : specials) {
      SCOPED_TRACE(static_cast<int>(s.f));
      SCOPED_TRACE(s.x);
      const Values<T> x(67, static_cast<T>(s.x));
      Values<T> y(67);
      kernels::unary(TestDevice{}, s.f, x.data(), y.data(), 67);
      expect_close(y, std::vector<double>(67, s.y), 2);
    }
  });
}

}  // namespace
}  // namespace tapestry
