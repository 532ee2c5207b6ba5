#include "core/kernels/elementwise/unary.h"

#include <variant>

#include "core/kernels/elementwise/activation_functors.h"
#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Function = std::variant<Unary, Activation>;

struct FunctionCase {
  Function f;
  const char* name;
  // In long double, so that the reference has digits to spare.
  long double (*value)(long double);
  long double (*slope)(long double);  // of what kNeeds says
  functors::Needs needs;
  double low, high;  // the range to test

  long double slope_at(long double x) const {
    return slope(needs == functors::Needs::kOutput ? value(x) : x);
  }
};

FunctionCase make_case(Function which, const char* name, double low, double high) {
  return std::visit(
      [&](auto f) {
        return with_functor(f, [&](auto functor) {
          using F = decltype(functor);
          return FunctionCase{
              f,   name, F::template f<long double>, F::template df<long double>, F::kNeeds,
              low, high};
        });
      },
      which);
}

std::vector<FunctionCase> all_cases() {
  std::vector<FunctionCase> cases = {
      make_case(Unary::kTanh, "tanh", -12, 12), make_case(Unary::kSigmoid, "sigmoid", -80, 80),
      make_case(Unary::kExp, "exp", -80, 4), make_case(Unary::kLog, "log", 1e-6, 50),
      make_case(Unary::kSqrt, "sqrt", 1e-3, 50)};
  for (const Activation f : kActivations) {
    cases.push_back(make_case(f, name_of(f), -14, 14));
    cases.push_back(make_case(f, name_of(f), -80, 80));
  }
  return cases;
}

template <class T>
void forward(Function which, const T* x, T* y, int64_t n) {
  std::visit([&](auto f) { kernels::unary(TestDevice{}, f, x, y, n); }, which);
}

template <class T>
void backward(Function which, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write) {
  std::visit([&](auto f) { kernels::unary_backward(TestDevice{}, f, x, y, dy, dx, n, write); },
             which);
}

// Half of the points near 0, where cancellation would show.
template <class T>
Values<T> points(const FunctionCase& c, int64_t n) {
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
    for (const FunctionCase& c : all_cases()) {
      SCOPED_TRACE(c.name);
      for (const int64_t n : {1, 31, 33, 257, 2000}) {
        Values<T> x = points<T>(c, n), y(x.size());
        std::vector<double> expected;
        for (const T v : x) expected.push_back(static_cast<double>(c.value(v)));
        forward(c.f, x.data(), y.data(), n);
        expect_close(y, expected, 6);
        forward(c.f, x.data(), x.data(), n);
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
      kernels::unary(TestDevice{}, Activation::kGelu, in.data(), y.data(), 1);
      EXPECT_NEAR(y[0] / functors::Gelu::f(static_cast<double>(x)), 1, 4e-6) << x;
    }
  });
}

TYPED_TEST(UnaryTest, BackwardEqualsTheScalarFunctor) {
  using T = TypeParam;
  on_every_target([] {
    for (const FunctionCase& c : all_cases()) {
      SCOPED_TRACE(c.name);
      for (const int64_t n : {1, 31, 33, 257}) {
        const Values<T> x = points<T>(c, n), dy = random_values<T>(n, 5);
        Values<T> y(x.size());
        forward(c.f, x.data(), y.data(), n);
        std::vector<double> slope;
        for (size_t i = 0; i < x.size(); ++i) {
          const T v = c.needs == functors::Needs::kOutput ? y[i] : x[i];
          slope.push_back(static_cast<double>(c.slope(v) * dy[i]));
        }
        // Only what the derivative needs is there.
        const T* const px = c.needs == functors::Needs::kInput ? x.data() : nullptr;
        const T* const py = c.needs == functors::Needs::kOutput ? y.data() : nullptr;
        for (const Write write : kBothWrites) {
          const Values<T> before = random_values<T>(n, 6);
          Values<T> dx = before;
          backward(c.f, px, py, dy.data(), dx.data(), n, write);
          expect_close(dx, delivered(slope, widen(before), write), 20);
        }
        Values<T> dx(x.size()), in_place = dy;
        backward(c.f, px, py, dy.data(), dx.data(), n, Write::kSet);
        backward(c.f, px, py, in_place.data(), in_place.data(), n, Write::kSet);
        EXPECT_EQ(dx, in_place);
      }
    }
  });
}

TYPED_TEST(UnaryTest, DerivativesAgreeWithFiniteDifferences) {
  for (const FunctionCase& c : all_cases()) {
    for (const double x : {-20.0, -4.5, -2.1, -0.8, -0.1, 0.3, 0.9, 1.7, 3.3, 20.0}) {
      if (x < c.low || x > c.high) continue;
      const long double h = 1e-5L, numeric = (c.value(x + h) - c.value(x - h)) / (2 * h);
      EXPECT_NEAR(static_cast<double>(c.slope_at(x)), static_cast<double>(numeric),
                  1e-8 * (1 + std::abs(static_cast<double>(numeric))))
          << c.name;
    }
  }
}

TYPED_TEST(UnaryTest, SpecialValues) {
  using T = TypeParam;
  struct Special {
    Function f;
    double x, y;
  };
  const Special specials[] = {{Unary::kExp, -kInfinity, 0},
                              {Unary::kExp, kInfinity, kInfinity},
                              {Unary::kExp, 2000, kInfinity},
                              {Unary::kExp, -2000, 0},
                              {Unary::kExp, kNan, kNan},
                              {Unary::kLog, 0, -kInfinity},
                              {Unary::kLog, -1, kNan},
                              {Unary::kLog, kInfinity, kInfinity},
                              {Unary::kLog, kNan, kNan},
                              {Unary::kSqrt, -1, kNan},
                              {Unary::kSqrt, kInfinity, kInfinity},
                              {Unary::kSqrt, 0, 0},
                              {Unary::kTanh, kInfinity, 1},
                              {Unary::kTanh, -kInfinity, -1},
                              {Unary::kTanh, kNan, kNan},
                              {Unary::kSigmoid, kInfinity, 1},
                              {Unary::kSigmoid, -kInfinity, 0},
                              {Unary::kSigmoid, kNan, kNan},
                              {Activation::kRelu, kNan, kNan},
                              {Activation::kRelu, -kInfinity, 0},
                              {Activation::kRelu, kInfinity, kInfinity},
                              {Activation::kRelu2, kNan, kNan},
                              {Activation::kRelu2, -kInfinity, 0},
                              {Activation::kRelu2, kInfinity, kInfinity},
                              {Activation::kGelu, kNan, kNan},
                              {Activation::kGelu, kInfinity, kInfinity},
                              {Activation::kGelu, -40, 0},
                              {Activation::kSilu, kNan, kNan},
                              {Activation::kSilu, kInfinity, kInfinity},
                              {Activation::kSilu, -2000, 0},
                              {Activation::kGeluTanh, kNan, kNan},
                              {Activation::kGeluTanh, -40, 0}};
  on_every_target([&] {
    for (const Special& s : specials) {
      SCOPED_TRACE(&s - specials);
      SCOPED_TRACE(s.x);
      const Values<T> x(67, static_cast<T>(s.x));
      Values<T> y(67);
      forward(s.f, x.data(), y.data(), 67);
      expect_close(y, std::vector<double>(67, s.y), 2);
    }
  });
}

}  // namespace
}  // namespace tapestry
