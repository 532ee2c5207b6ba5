// Batch normalisation of every column over all rows (Ioffe and Szegedy 2015).
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

struct BatchNormShape {
  int64_t rows = 0;  ///< N, all positions of the batch
  int64_t cols = 0;  ///< D
  double eps = 1e-5;
};

/// y = (x - mean) / sqrt(variance + eps) * gamma + beta, with statistics of the batch or running
/// ones.
template <class T>
struct BatchNormForward {
  const T* x;
  const Wider<T>* mean;      ///< (cols)
  const Wider<T>* variance;  ///< (cols), biased
  const T* gamma;
  const T* beta;  ///< may be null
  T* y;
};

/// With the statistics of x itself: d_gamma (=|+=) sum dy * xhat, d_beta (=|+=) sum dy, dx (=|+=)
/// gamma / sqrt(variance + eps) * (dy - mean(dy) - xhat mean(dy * xhat)). A null gradient is not
/// computed.
template <class T>
struct BatchNormBackward {
  const T* x;
  const Wider<T>* mean;
  const Wider<T>* variance;
  const T* gamma;
  const T* dy;
  T* dx;
  Write dx_write;
  T* d_gamma;
  Write d_gamma_write;
  T* d_beta;
  Write d_beta_write;
};

namespace kernels {

/// Mean and biased variance of each column, rows > 0. The variance is computed from x - mean, so
/// that a large mean costs no digits.
template <class T>
void column_moments(Cpu, int64_t rows, int64_t cols, const T* x, Wider<T>* mean,
                    Wider<T>* variance);

template <class T>
void batch_norm(Cpu, const BatchNormShape& shape, const BatchNormForward<T>& args);
template <class T>
void batch_norm_backward(Cpu, const BatchNormShape& shape, const BatchNormBackward<T>& args);

/// running = (1 - momentum) * running + momentum * scale * x, n elements. Where x is not finite,
/// `running` keeps its value: one bad batch must not spoil it for ever.
template <class T>
void update_running(Cpu, double momentum, double scale, const T* x, T* running, int64_t n);

template <class T>
void column_moments(Cuda, int64_t rows, int64_t cols, const T* x, Wider<T>* mean,
                    Wider<T>* variance);
template <class T>
void batch_norm(Cuda, const BatchNormShape& shape, const BatchNormForward<T>& args);
template <class T>
void batch_norm_backward(Cuda, const BatchNormShape& shape, const BatchNormBackward<T>& args);
template <class T>
void update_running(Cuda, double momentum, double scale, const T* x, T* running, int64_t n);

}  // namespace kernels
}  // namespace tapestry
