// The classifier of a search with its top-k: the logits of all rows are never stored.
#pragma once

#include <span>

#include "core/kernels/packed/logit_screen.h"
#include "core/kernels/packed/packed_linear.h"
#include "core/kernels/top_logits.h"

namespace tapestry {

/// For each row of x the rows of a classifier's matrix that it may choose, ascending and at least
/// one: the others count for it as if the matrix had them not, bit by bit. Empty: each may choose
/// all.
using ChosenRows = std::span<const std::span<const int32_t>>;

namespace kernels {

/// top_logits() (top_logits.h) of all rows of x W^T + bias, of the `count` largest: the bits of
/// packed_linear(), of softcap() (autograd/ops.h) and of top_logits() after it. `logits` has no y
/// and no activation.
void packed_top_logits(Cpu, const PackedLinear& logits, int64_t count, const int32_t* banned,
                       double* top, ChosenRows chosen = {});

inline constexpr int32_t kNoToken = -1, kNotFinite = -2;

/// The token of the largest logit of each row, for `count` 1 and without the sum: the same token,
/// kNoToken where only -inf is left, kNotFinite where the sum would not be finite. `logits` has a
/// matrix of float32 or bfloat16, and the screen is of that.
void packed_largest(Cpu, const PackedLinear& logits, const LogitScreen& screen,
                    const int32_t* banned, int32_t* largest, ChosenRows chosen = {});

/// top_logits() of one row z (V) of which only the `chosen` tokens count, if it names any.
template <class T>
void top_of_chosen(const T* z, std::span<const int32_t> chosen, TopLogitsShape shape,
                   const int32_t* banned, double* top);

}  // namespace kernels
}  // namespace tapestry
