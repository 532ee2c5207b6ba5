// What a search wants to know of rows of logits: what turns them into log-probabilities, and the
// largest ones.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

struct TopLogitsShape {
  int64_t rows = 0;   ///< R
  int64_t vocab = 0;  ///< V > 0
  int64_t count = 1;  ///< K >= 1
};

namespace kernels {

/// For row rows[r] of `logits`, R of them: top[r * (1 + 2 K)] = log(sum(exp(z))), then K pairs of a
/// token and its logit, the largest first and ties by the lower token; token -1 where no more than
/// -inf is left. A logit that is not a number, or +inf, makes the sum not finite; the pairs then
/// mean nothing.
template <class T>
void top_logits(Cpu, const TopLogitsShape& shape, const int32_t* rows, const T* logits,
                double* top);
template <class T>
void top_logits(Cuda, const TopLogitsShape& shape, const int32_t* rows, const T* logits,
                double* top);

}  // namespace kernels
}  // namespace tapestry
