// The loss of tasks that predict numbers.
#pragma once

#include "autograd/ops.h"

namespace tapestry {

/// The mean of the squared errors: predicted and truth (N, ...), of one type and device. Without
/// likelihood and counts: those sums are 0.
inline CrossEntropy squared_error(const Var& predicted, const Tensor& truth,
                                  const CrossEntropyOptions& options) {
  const Var error = sub(predicted, truth);
  const Var total = sum(mul(error, error));
  const double sum_of_squares = total.value().item();
  CrossEntropy result;
  result.tokens = truth.shape()[0];
  const double count =
      options.normalizer > 0 ? options.normalizer : static_cast<double>(result.tokens);
  result.loss = affine(total, 1 / count, 0);
  result.sums = Tensor::from<double>({sum_of_squares, 0, 0}, {3}).to(truth.device());
  return result;
}

}  // namespace tapestry
