// Element-wise functions of one tensor. The scalar maths (f, df) is in unary_functors.h, shared by
// both backends.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

enum class Unary {
  kRelu,      ///< max(x, 0); f'(0) = 0
  kGelu,      ///< x * Phi(x), exact
  kGeluTanh,  ///< 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kSilu,      ///< x * sigmoid(x)
  kTanh,
  kSigmoid,
  kExp,
  kLog,
  kSqrt,
};

namespace kernels {

/// y = f(x), n elements; y may be x.
template <class T>
void unary(Cpu, Unary f, const T* x, T* y, int64_t n);
template <class T>
void unary(Cuda, Unary f, const T* x, T* y, int64_t n);

/// dx (=|+=) f'(x) * dy. `y` is f(x) and may be null for the four activations (relu, gelu,
/// gelu_tanh, silu); `x` may be null for relu, tanh, sigmoid, exp and sqrt, whose derivative
/// follows from y. dx may be dy.
template <class T>
void unary_backward(Cpu, Unary f, const T* x, const T* y, const T* dy, T* dx, int64_t n,
                    Write write);
template <class T>
void unary_backward(Cuda, Unary f, const T* x, const T* y, const T* dy, T* dx, int64_t n,
                    Write write);

}  // namespace kernels
}  // namespace tapestry
