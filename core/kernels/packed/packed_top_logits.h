// The classifier of a search with its top-k: the logits of all rows are never stored.
#pragma once

#include "core/kernels/packed/packed_linear.h"

namespace tapestry::kernels {

/// top_logits() (top_logits.h) of all rows of x W^T + bias, of the `count` largest: the bits of
/// packed_linear() and of top_logits() after it. `logits` has no y and no activation.
void packed_top_logits(Cpu, const PackedLinear& logits, int64_t count, const int32_t* banned,
                       double* top);

}  // namespace tapestry::kernels
