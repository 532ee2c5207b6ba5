// What beam search needs of rows of logits: the largest ones, and the normaliser that turns them
// into log-probabilities.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

struct TopLogitsShape {
  int64_t rows = 0;   ///< R
  int64_t vocab = 0;  ///< V > 0
  int64_t count = 1;  ///< K >= 1
};

namespace kernels {

/// For each r < R, with z the row rows[r] of `logits`: top[r * (1 + 2 K)] = log(sum(exp(z))), then
/// K pairs of a token and its logit, the largest logit first, of equal ones the lower token first.
/// The token is -1 if only -inf is left. If a logit is NaN or +inf the sum is not finite, and the
/// pairs mean nothing.
template <class T>
void top_logits(Cpu, const TopLogitsShape& shape, const int32_t* rows, const T* logits,
                double* top);
template <class T>
void top_logits(Cuda, const TopLogitsShape& shape, const int32_t* rows, const T* logits,
                double* top);

}  // namespace kernels
}  // namespace tapestry
