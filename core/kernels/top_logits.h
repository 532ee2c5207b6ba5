// Beam search's view of rows of logits: the largest ones, and the normaliser that turns them into
// log-probabilities.
#pragma once

#include "core/base/host_device.h"
#include "core/kernels/common.h"

namespace tapestry {

struct TopLogitsShape {
  int64_t rows = 0;   ///< R
  int64_t vocab = 0;  ///< V > 0
  int64_t count = 1;  ///< K >= 1
};

/// True if a bit set has the token; null is the empty set.
TAPESTRY_HOST_DEVICE inline bool has_token(const int32_t* set, int64_t token) {
  return set != nullptr && (static_cast<uint32_t>(set[token / 32]) >> (token % 32) & 1) != 0;
}

namespace kernels {

/// For each row z of logits (R, V): top[r * (1 + 2 K)] = log(sum(exp(z))), then
/// K pairs of a token and its logit, the largest logit first, of equal ones the lower token first.
/// Tokens in the set `banned` count in the sum, but are in no pair: bit v % 32 of banned[v / 32] is
/// token v; null: none are. The token is -1 if only -inf is left. If a logit is NaN or +inf the sum
/// is not finite, and the pairs mean nothing.
template <class T>
void top_logits(Cpu, const TopLogitsShape& shape, const T* logits, const int32_t* banned,
                double* top);
template <class T>
void top_logits(Cuda, const TopLogitsShape& shape, const T* logits, const int32_t* banned,
                double* top);

}  // namespace kernels
}  // namespace tapestry
