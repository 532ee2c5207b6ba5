// The scalar maths of the activations, as in unary_functors.h. Beside f, df and kNeeds each functor
// gives
//   kKinks    where f has no derivative: finite differences must stay away from there
#pragma once

#include <array>
#include <span>

#include "core/kernels/elementwise/activation.h"
#include "core/kernels/elementwise/unary_functors.h"

namespace tapestry {
namespace functors {

struct Identity {
  static constexpr Needs kNeeds = Needs::kNothing;
  static constexpr std::array<double, 0> kKinks = {};
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return x;
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T) {
    return T(1);
  }
};

struct Relu {
  static constexpr Needs kNeeds = Needs::kOutput;
  static constexpr std::array<double, 1> kKinks = {0};
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return x < 0 ? T(0) : x;  // NaN stays NaN
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T y) {
    return y > 0 ? T(1) : T(0);
  }
};

/// x * Phi(x); the derivative is Phi(x) + x * phi(x).
struct Gelu {
  static constexpr Needs kNeeds = Needs::kInput;
  static constexpr std::array<double, 0> kKinks = {};
  static constexpr double kDensityAt0 = 0.39894228040143267794;  // 1 / sqrt(2 pi)
  template <class T>
  TAPESTRY_HOST_DEVICE static T Phi(T x) {  // erfc, unlike erf, is exact far to the left
    return T(0.5) * std::erfc(x * T(-0.70710678118654752440));
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return x * Phi(x);
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T x) {
    return Phi(x) + x * T(kDensityAt0) * std::exp(T(-0.5) * x * x);
  }
};

struct GeluTanh {
  static constexpr Needs kNeeds = Needs::kInput;
  static constexpr std::array<double, 0> kKinks = {};
  static constexpr double kRootTwoOverPi = 0.79788456080286535588;
  static constexpr double kCubic = 0.044715;
  template <class T>
  TAPESTRY_HOST_DEVICE static T inner(T x) {
    return T(kRootTwoOverPi) * (x + T(kCubic) * x * x * x);
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return T(0.5) * x * (T(1) + std::tanh(inner(x)));
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T x) {
    return df(x, std::tanh(inner(x)));
  }
  /// t: tanh(inner(x))
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T x, T t) {
    const T slope = T(kRootTwoOverPi) * (T(1) + T(3 * kCubic) * x * x);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope;
  }
};

struct Silu {
  static constexpr Needs kNeeds = Needs::kInput;
  static constexpr std::array<double, 0> kKinks = {};
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return x * Sigmoid::f(x);
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T x) {
    const T tail = std::exp(-std::abs(x)), near_one = T(1) / (T(1) + tail);
    const T s = x < 0 ? tail * near_one : near_one;           // sigmoid(x)
    const T complement = x < 0 ? near_one : tail * near_one;  // 1 - s, with all of its digits
    return s * (T(1) + x * complement);
  }
};

/// The derivative is 2 max(x, 0), which the output's root gives.
struct Relu2 {
  static constexpr Needs kNeeds = Needs::kOutput;
  static constexpr std::array<double, 1> kKinks = {0};  // of the derivative
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    const T y = Relu::f(x);
    return y * y;
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T y) {
    return T(2) * std::sqrt(y);
  }
};

}  // namespace functors

/// Returns g(functor) with the functor of `activation`.
template <class G>
[[gnu::always_inline]] inline decltype(auto) with_functor(Activation activation, G&& g) {
  switch (activation) {
    case Activation::kNone:
      return g(functors::Identity());
    case Activation::kRelu:
      return g(functors::Relu());
    case Activation::kGelu:
      return g(functors::Gelu());
    case Activation::kGeluTanh:
      return g(functors::GeluTanh());
    case Activation::kSilu:
      return g(functors::Silu());
    case Activation::kRelu2:
      return g(functors::Relu2());
  }
  throw std::logic_error("no such Activation");
}

inline std::span<const double> kinks_of(Activation activation) {
  return with_functor(activation,
                      [](auto functor) { return std::span<const double>(functor.kKinks); });
}

}  // namespace tapestry
