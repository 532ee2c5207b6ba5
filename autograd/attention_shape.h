// What both forms of attention (ops.h) read from their operands and options.
#pragma once

#include "autograd/ops.h"
#include "core/kernels/attention/attention.h"

namespace tapestry {

/// The key/value heads: all heads where the options name none.
int64_t kv_heads_of(const AttentionOptions& options);

/// The width of one head, from the width of x (B, L, W) that holds `heads` of them. Throws Error of
/// `name` if it has another rank or a width that they do not divide.
int64_t head_size_of(const Var& x, int64_t heads, const char* name);

/// The shape of q (B, T, ...) over k (B, S, ...), whose masks are the options'. Throws Error if
/// they do not fit. Draws the dropout's numbers from the current tape.
AttentionShape attention_shape(const Var& q, const Var& k, int64_t head_size, int64_t value_size,
                               const AttentionOptions& options);

/// Strides of a mask's elements are 0 for an axis that it lacks or that has size 1.
template <class T>
ScoreBias<T> score_bias(const Tensor& mask, const Tensor& relative) {
  ScoreBias<T> bias;
  if (mask.defined()) {
    const Shape& shape = mask.shape();
    const int rank = shape.rank();
    const int64_t rows = shape[rank - 2], keys = shape[rank - 1];
    const int64_t heads = rank == 4 ? shape[1] : 1;
    if (mask.dtype() == DType::kInt32) {
      bias.seen = mask.data<int32_t>();
    } else {
      bias.added = mask.data<T>();
    }
    bias.row_stride = keys;
    bias.head_stride = heads > 1 ? rows * keys : 0;
    bias.batch_stride = rank > 2 && shape[0] > 1 ? heads * rows * keys : 0;
  }
  if (relative.defined()) {
    bias.relative = relative.data<T>();
    bias.reach = (relative.shape()[1] + 1) / 2;
  }
  return bias;
}

}  // namespace tapestry
