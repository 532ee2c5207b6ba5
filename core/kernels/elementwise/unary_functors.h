// The scalar maths of core/kernels/elementwise/unary.h and core/kernels/elementwise/activation.h,
// for host and device. Each functor gives
//   f(x)      the function
//   df(v)     its derivative, from v = x or v = f(x) as kNeeds says
// The vectorised forms in cpu/unary_simd-inl.h and cpu/activation_simd-inl.h are tested against
// these.
#pragma once

#include <cmath>
#include <stdexcept>

#include "core/base/host_device.h"
#include "core/kernels/elementwise/unary.h"

namespace tapestry {
namespace functors {

/// What df is computed from; nothing where it is constant.
enum class Needs { kNothing, kInput, kOutput };

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

/// The argument of F::df: x or y = f(x). `ignored` stands for it where there is none.
template <class F, class T>
const T* argument_of_df(const T* x, const T* y, const T* ignored) {
  if constexpr (F::kNeeds == Needs::kInput) {
    return x;
  } else if constexpr (F::kNeeds == Needs::kOutput) {
    return y;
  } else {
    return ignored;
  }
}

}  // namespace functors

/// Returns g(functor) with the functor of f. Inlined, so that g becomes part of a caller that is
/// compiled for another instruction set.
template <class G>
[[gnu::always_inline]] inline decltype(auto) with_functor(Unary f, G&& g) {
  switch (f) {
    case Unary::kTanh:
      return g(functors::Tanh());
    case Unary::kSigmoid:
      return g(functors::Sigmoid());
    case Unary::kExp:
      return g(functors::Exp());
    case Unary::kLog:
      return g(functors::Log());
    case Unary::kSqrt:
      return g(functors::Sqrt());
  }
  throw std::logic_error("no such Unary");
}

/// What the derivative of f, a Unary or an Activation, is computed from.
template <class F>
functors::Needs derivative_needs(F f) {
  return with_functor(f, [](auto functor) { return functor.kNeeds; });
}

}  // namespace tapestry
