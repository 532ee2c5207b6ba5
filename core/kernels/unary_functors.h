// The scalar maths of core/kernels/unary.h, for host and device. Each functor gives
//   f(x)      the function
//   df(v)     its derivative, from v = x or v = f(x), as kNeeds says
// The vectorised forms in unary_simd-inl.h are tested against these.
#pragma once

#include <cmath>

#include "core/host_device.h"

namespace tapestry::functors {

enum class Needs { kInput, kOutput, kEither };

struct Relu {
  static constexpr Needs kNeeds = Needs::kEither;
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return x < 0 ? T(0) : x;  // NaN stays NaN
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T x_or_y) {
    return x_or_y > 0 ? T(1) : T(0);
  }
};

/// x * Phi(x); the derivative is Phi(x) + x * phi(x).
struct Gelu {
  static constexpr Needs kNeeds = Needs::kInput;
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
    const T t = std::tanh(inner(x));
    const T slope = T(kRootTwoOverPi) * (T(1) + T(3 * kCubic) * x * x);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope;
  }
};

struct Sigmoid {
  static constexpr Needs kNeeds = Needs::kOutput;
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return T(1) / (T(1) + std::exp(-x));
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T y) {
    return y * (T(1) - y);
  }
};

struct Silu {
  static constexpr Needs kNeeds = Needs::kInput;
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

struct Tanh {
  static constexpr Needs kNeeds = Needs::kOutput;
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return std::tanh(x);
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T y) {
    return T(1) - y * y;
  }
};

struct Exp {
  static constexpr Needs kNeeds = Needs::kOutput;
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return std::exp(x);
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T y) {
    return y;
  }
};

struct Log {
  static constexpr Needs kNeeds = Needs::kInput;
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return std::log(x);
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T x) {
    return T(1) / x;
  }
};

struct Sqrt {
  static constexpr Needs kNeeds = Needs::kOutput;
  template <class T>
  TAPESTRY_HOST_DEVICE static T f(T x) {
    return std::sqrt(x);
  }
  template <class T>
  TAPESTRY_HOST_DEVICE static T df(T y) {
    return T(0.5) / y;
  }
};

}  // namespace tapestry::functors
