// What the forward and backward passes of attention share: places and masks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/kernels/attention.h"

namespace tapestry {

/// Head `head` of batch element `b`, from row `row` on.
template <class T>
T* at(const Rows<T>& rows, int64_t b, int64_t row, int64_t head, int64_t head_size) {
  return rows.data + b * rows.batch_stride + row * rows.row_stride + head * head_size;
}

/// How many keys of batch element `b` there are to see.
inline int64_t key_length(const AttentionShape& shape, int64_t b) {
  if (shape.key_lengths == nullptr) return shape.keys;
  return std::clamp<int64_t>(shape.key_lengths[b], 0, shape.keys);
}

/// Every mask is a prefix: of `length` keys query `t` sees those before this one.
inline int64_t visible_keys(const AttentionShape& shape, int64_t t, int64_t length) {
  if (!shape.causal) return length;
  return std::clamp<int64_t>(t + shape.keys - shape.queries + 1, 0, length);
}

/// The inverse: the first query that sees key `j`.
inline int64_t first_viewer(const AttentionShape& shape, int64_t j) {
  return shape.causal ? std::max<int64_t>(0, j - (shape.keys - shape.queries)) : 0;
}

/// The row of weights of (b, head, t), counted through the whole batch.
inline int64_t weight_row(const AttentionShape& shape, int64_t b, int64_t head, int64_t t) {
  return (b * shape.heads + head) * shape.queries + t;
}

}  // namespace tapestry
