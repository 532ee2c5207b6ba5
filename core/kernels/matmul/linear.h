// y = act(x W^T + b): the dense layer with its activation, and all its gradients.
#pragma once

#include "core/kernels/common.h"
#include "core/kernels/elementwise/activation.h"
#include "core/precision.h"

namespace tapestry {

class FrozenMatrix;

/// x (rows, in), W (out, in) as PyTorch stores it, b (out), y (rows, out). `precision` is that of
/// all three products of float32.
struct LinearShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  Activation activation = Activation::kNone;
  Precision precision = Precision::kFull;
};

/// `bias` may be null. `z` receives the pre-activation x W^T + b when not null: backward
/// needs it or y, as derivative_needs(activation) says (unary_functors.h). Where `frozen` is not
/// null it is W in place of `weight`, on a CPU only: its numbers are rounded to T.
template <class T>
struct LinearForward {
  const T* x;
  const T* weight;
  const T* bias;
  T* z;
  T* y;
  const FrozenMatrix* frozen = nullptr;
};

/// dz = dy * act'(z); dx (=|+=) dz W; dW (=|+=) dz^T x; db (=|+=) column sums of dz. Outputs that
/// are null are not computed. Of z and y only what the activation's derivative needs is read, and
/// the other may be null. `frozen` as above; it has no dW.
template <class T>
struct LinearBackward {
  const T* x;
  const T* weight;
  const T* z;
  const T* y;
  const T* dy;
  T* dx;
  Write dx_write;
  T* d_weight;
  Write d_weight_write;
  T* d_bias;
  Write d_bias_write;
  const FrozenMatrix* frozen = nullptr;
};

namespace kernels {

template <class T>
void linear(Cpu, const LinearShape& shape, const LinearForward<T>& args);
template <class T>
void linear(Cuda, const LinearShape& shape, const LinearForward<T>& args);
template <class T>
void linear_backward(Cpu, const LinearShape& shape, const LinearBackward<T>& args);
template <class T>
void linear_backward(Cuda, const LinearShape& shape, const LinearBackward<T>& args);

}  // namespace kernels
}  // namespace tapestry
