// Element-wise functions of one tensor.
#pragma once

#include "core/kernels/common.h"
#include "core/kernels/elementwise/activation.h"

namespace tapestry {

/// Functions that are not activations of layers.
enum class Unary {
  kTanh,
  kSigmoid,
  kExp,
  kLog,
  kSqrt,
};

namespace kernels {

// F is Unary or Activation; the maths is in unary_functors.h and activation_functors.h.

/// y = f(x), n elements; y may be x.
template <class T, class F>
void unary(Cpu, F f, const T* x, T* y, int64_t n);
template <class T, class F>
void unary(Cuda, F f, const T* x, T* y, int64_t n);

/// dx (=|+=) f'(x) * dy. `y` is f(x). derivative_needs(f) (unary_functors.h) says which of x and y
/// is read; the other may be null. dx may be dy.
template <class T, class F>
void unary_backward(Cpu, F f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write);
template <class T, class F>
void unary_backward(Cuda, F f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write);

}  // namespace kernels
}  // namespace tapestry
