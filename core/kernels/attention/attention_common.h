// Shared by the forward and backward passes of attention: addresses and masks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"
#include "core/kernels/attention/attention.h"

namespace tapestry {

/// The address of row `row` of head `head` in batch element `b`.
template <class T>
TAPESTRY_HOST_DEVICE T* at(const Rows<T>& rows, int64_t b, int64_t row, int64_t head,
                           int64_t head_size) {
  return rows.data + b * rows.batch_stride + row * rows.row_stride + head * head_size;
}

/// The number of keys of batch element `b` before its key length.
TAPESTRY_HOST_DEVICE inline int64_t key_length(const AttentionShape& shape, int64_t b) {
  if (shape.key_lengths == nullptr) return shape.keys;
  return std::clamp<int64_t>(shape.key_lengths[b], 0, shape.keys);
}

/// How many of the first `length` keys query `t` sees. Every mask leaves a prefix of the keys.
TAPESTRY_HOST_DEVICE inline int64_t visible_keys(const AttentionShape& shape, int64_t t,
                                                 int64_t length) {
  if (!shape.causal) return length;
  return std::clamp<int64_t>(t + shape.keys - shape.queries + 1, 0, length);
}

/// The inverse: the first query that sees key `j`.
TAPESTRY_HOST_DEVICE inline int64_t first_viewer(const AttentionShape& shape, int64_t j) {
  return shape.causal ? std::max<int64_t>(0, j - (shape.keys - shape.queries)) : 0;
}

/// Prefetches the rows of the next head, a few at a time between computations. The rows of a head
/// lie too far apart for the processor's own prefetcher.
class RowPrefetcher {
 public:
  /// Adds `count` rows of one head; of a long operand only the first rows.
  template <class T>
  void add(const Rows<T>& rows, int64_t b, int64_t row, int64_t head, int64_t head_size,
           int64_t count) {
    if (rows.data == nullptr) return;
    constexpr int64_t kMostRows = 128;
    ranges_[ranges_count_++] = {reinterpret_cast<const char*>(at(rows, b, row, head, head_size)),
                                rows.row_stride * static_cast<int64_t>(sizeof(T)),
                                std::min(count, kMostRows)};
    bytes_ = head_size * static_cast<int64_t>(sizeof(T));
    rows_left_ += std::min(count, kMostRows);
  }

  int64_t rows_left() const { return rows_left_; }

  /// Prefetches the next `count` rows.
  void fetch(int64_t count) {
    for (; count > 0 && current_ < ranges_count_; --count, ++row_, --rows_left_) {
      if (row_ == ranges_[current_].rows) {
        ++current_;
        row_ = 0;
        if (current_ == ranges_count_) return;
      }
      const char* const row = ranges_[current_].data + row_ * ranges_[current_].stride;
      for (int64_t byte = 0; byte < bytes_; byte += 64) __builtin_prefetch(row + byte, 0, 2);
    }
  }

 private:
  struct Range {
    const char* data;
    int64_t stride, rows;
  };

  Range ranges_[8];
  int ranges_count_ = 0, current_ = 0;
  int64_t row_ = 0, rows_left_ = 0, bytes_ = 0;
};

/// How many of `heads` heads one tile computes in turn, so that it can prefetch the next one: as
/// many as leave about 64 tiles.
inline int64_t heads_per_tile(int64_t tiles, int64_t heads) {
  return std::clamp<int64_t>(tiles / 64, 1, heads);
}

/// The index of the row of weights of (b, head, t) in the whole batch.
TAPESTRY_HOST_DEVICE inline int64_t weight_row(const AttentionShape& shape, int64_t b, int64_t head,
                                               int64_t t) {
  return (b * shape.heads + head) * shape.queries + t;
}

}  // namespace tapestry
