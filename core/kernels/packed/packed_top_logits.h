// The classifier of a search with its top-k: the logits of all rows are never stored.
#pragma once

#include "core/kernels/packed/logit_screen.h"
#include "core/kernels/packed/packed_linear.h"

namespace tapestry::kernels {

/// top_logits() (top_logits.h) of all rows of x W^T + bias, of the `count` largest: the bits of
/// packed_linear(), of softcap() (autograd/ops.h) and of top_logits() after it. `logits` has no y
/// and no activation.
void packed_top_logits(Cpu, const PackedLinear& logits, int64_t count, const int32_t* banned,
                       double* top);

inline constexpr int32_t kNoToken = -1, kNotFinite = -2;

/// The token of the largest logit of each row, for `count` 1 and without the sum: the same token,
/// kNoToken where only -inf is left, kNotFinite where the sum would not be finite. `logits` has a
/// matrix of float32 or bfloat16, and the screen is of that.
void packed_largest(Cpu, const PackedLinear& logits, const LogitScreen& screen,
                    const int32_t* banned, int32_t* largest);

}  // namespace tapestry::kernels
