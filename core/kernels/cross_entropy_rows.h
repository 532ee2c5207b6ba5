// The vectorised passes over rows of logits in both cross-entropies. A row may be read in pieces
// (ranges of classes), each with its own maximum; row_loss() takes the combined statistics.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/host_device.h"
#include "core/bfloat16.h"
#include "core/kernels/cross_entropy.h"

namespace tapestry {

/// Statistics of one piece of a row of logits v (bias included).
template <class T>
struct PieceStats {
  T max = 0;
  double sum = 0;    ///< of e^(v - max)
  double total = 0;  ///< of v
};

template <class T>
struct CrossEntropyPasses {
  using W = Wider<T>;

  /// Statistics of v = z + bias over n > 0 classes (bias may be null). e^(v - max) goes to `e` when
  /// that is not null; e may be z.
  PieceStats<W> (*exponentials)(const T* z, const W* bias, int64_t n, W* e);
  /// z becomes softcap * tanh((z + bias) / softcap), bias may be null; `slopes` get the
  /// derivatives, and may be null.
  void (*cap)(W softcap, const W* bias, int64_t n, T* z, W* slopes);
  /// dz = e * factor - spread, n classes; dz may be e.
  void (*gradient)(const W* e, W factor, W spread, int64_t n, T* dz);
  /// y *= x, n elements.
  void (*multiply)(const W* x, int64_t n, T* y);
  /// y += x, n elements.
  void (*add)(const W* x, int64_t n, W* y);
  /// y = sum of `count` > 0 vectors of n elements, `stride` apart.
  void (*sum)(const W* parts, int64_t stride, int64_t count, int64_t n, T* y);
};

/// The passes for this processor.
template <class T>
const CrossEntropyPasses<T>& cross_entropy_passes();

/// A row's contribution to CrossEntropySums.
struct RowLoss {
  double loss = 0, nll = 0, correct = 0;
};

/// The loss of a row whose target has the logit `target_logit`, from the maximum of all its logits
/// and the sums over all of them (of e^(v - max) and of v). `leads`: no class before the target has
/// as large a logit.
TAPESTRY_HOST_DEVICE inline RowLoss row_loss(const CrossEntropyShape& shape, double target_logit,
                                             double max, double sum, double total, bool leads,
                                             double weight) {
  const double log_sum_exp = max + std::log(sum);
  RowLoss result;
  result.nll = log_sum_exp - target_logit;
  result.loss = result.nll;
  // A factor of 0 would not do: a class that is masked by -inf makes the mean infinite.
  if (shape.label_smoothing != 0) {
    const double uniform = log_sum_exp - total / static_cast<double>(shape.classes);
    result.loss += shape.label_smoothing * (uniform - result.nll);
  }
  result.loss *= weight;
  result.nll *= weight;
  if (leads && target_logit == max && !std::isnan(sum)) result.correct = weight;
  return result;
}

/// The sums over all rows, in their order.
CrossEntropySums total_loss(const RowLoss* rows, int64_t count);

}  // namespace tapestry
