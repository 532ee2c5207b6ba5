// Layer normalisation (Ba et al. 2016) and RMS normalisation (Zhang and Sennrich 2019), fused with
// the dropout and the residual addition before it.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

enum class NormKind {
  kLayer,  ///< (s - mean) / sqrt(var + eps) * gamma + beta, biased variance
  kRms,    ///< s / sqrt(mean(s^2) + eps) * gamma
  kBatch,  ///< as kLayer with statistics of each column; has its own kernel, batch_norm.h
};

struct NormShape {
  NormKind kind = NormKind::kLayer;
  int64_t rows = 0;
  int64_t cols = 0;
  double eps = 1e-5;
};

/// s = residual + dropout(x); y = norm(s). Null pointers leave a part out: `residual` (s = x,
/// dropout must be off), `beta`, and `sum`, which receives s (needed by backward when there is a
/// residual).
template <class T>
struct NormForward {
  const T* x;
  const T* residual;
  Dropout dropout;
  const T* gamma;
  const T* beta;
  T* sum;
  T* y;
  Wider<T>* mean;  ///< (rows); null for RMS
  Wider<T>* rstd;  ///< (rows): 1 / sqrt(var + eps)
};

/// ds = d norm(s) (dy) + dsum, and from it every gradient that is not null:
/// d_residual (=|+=) ds, dx (=|+=) dropout(ds), d_gamma (=|+=) sum dy * xhat, d_beta (=|+=) sum dy.
/// `dsum` is the gradient that reaches s by another path (pre-norm blocks), or null; `dy` may be
/// null if there is only dsum.
template <class T>
struct NormBackward {
  const T* sum;
  const T* gamma;
  const Wider<T>* mean;
  const Wider<T>* rstd;
  const T* dy;
  const T* dsum;
  Dropout dropout;
  T* dx;
  Write dx_write;
  T* d_residual;
  Write d_residual_write;
  T* d_gamma;
  Write d_gamma_write;
  T* d_beta;
  Write d_beta_write;
};

namespace kernels {

template <class T>
void norm(Cpu, const NormShape& shape, const NormForward<T>& args);
template <class T>
void norm_backward(Cpu, const NormShape& shape, const NormBackward<T>& args);

template <class T>
void norm(Cuda, const NormShape& shape, const NormForward<T>& args);
template <class T>
void norm_backward(Cuda, const NormShape& shape, const NormBackward<T>& args);

}  // namespace kernels
}  // namespace tapestry
