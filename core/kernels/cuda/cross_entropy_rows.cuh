// The parts of a cross-entropy on the device, for given logits and for logits computed chunk by
// chunk. Nothing here waits for the device.
#pragma once

#include "core/kernels/cross_entropy_rows.h"
#include "core/kernels/cuda/common.cuh"

namespace tapestry {

/// Rows of `shape.classes` logits, `stride` elements apart.
template <class T>
struct CrossEntropyRows {
  const T* logits = nullptr;
  int64_t stride = 0;
  RowTargets targets = {};
  double grad_scale = 1;
  RowLoss* losses = nullptr;  ///< (rows)
  /// As logits: grad_scale * dz, then zeros up to the stride; may be the logits, null for none.
  T* dlogits = nullptr;
};

/// The loss of each row and its gradient; for an ignored row both are 0. T is float, double or
/// BFloat16.
template <class T>
void cross_entropy_rows(const CrossEntropyShape& shape, const CrossEntropyRows<T>& args);

/// *sums = the sums over the rows, in an order that only their number decides.
void sum_rows(const RowLoss* losses, int64_t rows, CrossEntropySums* sums);

}  // namespace tapestry
