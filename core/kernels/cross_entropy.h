// Cross-entropy with label smoothing and an ignored label, by itself and fused with the classifier.
//
// For a row with logits z, target c, V classes and smoothing e (PyTorch's definition: the target
// distribution is (1 - e) one_hot(c) + e / V):
//   nll  = logsumexp(z) - z_c
//   loss = (1 - e) * nll + e * (logsumexp(z) - mean(z))
//   dz   = softmax(z) - (1 - e) one_hot(c) - e / V
// With a softcap s the classifier's own numbers y become z = s tanh(y / s) (Gemma 2), and their
// gradient is dz (1 - tanh(y / s)^2).
// Rows whose target is `ignore_index` give loss 0 and gradient 0. Where rows have weights, all that
// a row gives is multiplied by its own.
#pragma once

#include "core/base/host_device.h"
#include "core/kernels/common.h"
#include "core/precision.h"

namespace tapestry {

class FrozenMatrix;

struct CrossEntropyShape {
  int64_t rows = 0;
  int64_t classes = 0;
  double label_smoothing = 0;
  int32_t ignore_index = -1;
  Precision precision = Precision::kFull;  ///< of the classifier's products
  double softcap = 0;                      ///< of linear_cross_entropy()'s logits; 0: none
};

/// Sums over the rows that are not ignored, in double and in row order.
struct CrossEntropySums {
  double loss = 0;
  double nll = 0;
  double correct = 0;  ///< rows whose largest logit is the target's (the lowest index wins a tie)
};

/// The targets of some rows.
struct RowTargets {
  const int32_t* targets = nullptr;  ///< (rows)
  const double* weights = nullptr;   ///< (rows); null: each is 1

  TAPESTRY_HOST_DEVICE double weight(int64_t row) const {
    return weights == nullptr ? 1 : weights[row];
  }
  RowTargets from(int64_t row) const {
    return {targets + row, weights == nullptr ? nullptr : weights + row};
  }
};

/// x (rows, in), W (classes, in), bias (classes) or null.
/// When `dx` is not null the gradients of (loss sum * grad_scale) are computed in the same pass:
/// dx, dW and db are written (kSet); of the last two, those that are not null. Where `frozen` is
/// not null it is W in place of `weight`, on a CPU only; it has no dW.
template <class T>
struct LinearCrossEntropy {
  int64_t in = 0;
  const T* x = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;
  RowTargets targets = {};
  RowTargets host_targets = {};  ///< a copy in host memory; its targets may be null
  double grad_scale = 1;
  T* dx = nullptr;
  T* d_weight = nullptr;
  T* d_bias = nullptr;
  /// On CUDA: the limit of memory for logits, but a chunk has at least 1024 rows. A gradient to
  /// which several chunks add is rounded to T after each.
  int64_t chunk_bytes = int64_t{1} << 30;
  const FrozenMatrix* frozen = nullptr;
};

namespace kernels {

// *sums is in device memory, like all arrays.

/// logits (rows, classes). When `dlogits` is not null it receives grad_scale * dz.
template <class T>
void cross_entropy(Cpu, const CrossEntropyShape& shape, const T* logits, const RowTargets& targets,
                   double grad_scale, T* dlogits, CrossEntropySums* sums);
template <class T>
void cross_entropy(Cuda, const CrossEntropyShape& shape, const T* logits, const RowTargets& targets,
                   double grad_scale, T* dlogits, CrossEntropySums* sums);

/// log(sum of e^z) of a row: -inf if all logits are. What linear_cross_entropy() finds for the same
/// logits to the last bit, but with bfloat16 instructions.
template <class T>
double log_sum_exp(Cpu, const T* logits, int64_t classes);

/// By chunks of rows: the logits of the whole batch are never stored. Ignored rows are left out; on
/// CUDA only with host_targets, and only if that saves an eighth of the rows (the number of rows
/// left is rounded up).
template <class T>
void linear_cross_entropy(Cpu, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums);
template <class T>
void linear_cross_entropy(Cuda, const CrossEntropyShape& shape, const LinearCrossEntropy<T>& args,
                          CrossEntropySums* sums);

}  // namespace kernels
}  // namespace tapestry
