// Shared by the forward and backward passes of attention: addresses and masks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/host_device.h"
#include "core/kernels/attention/attention.h"

namespace tapestry {

/// The address of row `row` of head `head` in batch element `b`; `size` is that of its heads.
template <class T>
TAPESTRY_HOST_DEVICE T* at(const Rows<T>& rows, int64_t b, int64_t row, int64_t head,
                           int64_t size) {
  return rows.data + b * rows.batch_stride + row * rows.row_stride + head * size;
}

/// The shape of batch element b by itself: with key_rows or starts each has its own number of keys.
TAPESTRY_HOST_DEVICE inline AttentionShape shape_of(AttentionShape shape, int64_t b) {
  if (shape.starts != nullptr) {
    shape.queries = shape.keys = shape.starts[b + 1] - shape.starts[b];
  } else if (shape.key_rows != nullptr) {
    shape.keys = shape.key_lengths[b];
    shape.key_lengths = nullptr;
  }
  return shape;
}

/// The operands of batch element b by itself: of sequences end to end its first row is row 0 of
/// every batch.
template <class T>
TAPESTRY_HOST_DEVICE Rows<T> own_rows(const AttentionShape& shape, int64_t b, Rows<T> rows) {
  if (shape.starts == nullptr || rows.data == nullptr) return rows;
  return {rows.data + shape.starts[b] * rows.row_stride, rows.row_stride, 0};
}
template <class T>
TAPESTRY_HOST_DEVICE AttentionForward<T> own_args(const AttentionShape& shape, int64_t b,
                                                  AttentionForward<T> args) {
  args.q = own_rows(shape, b, args.q), args.k = own_rows(shape, b, args.k);
  args.v = own_rows(shape, b, args.v), args.out = own_rows(shape, b, args.out);
  return args;
}
template <class T>
TAPESTRY_HOST_DEVICE AttentionBackward<T> own_args(const AttentionShape& shape, int64_t b,
                                                   AttentionBackward<T> args) {
  args.q = own_rows(shape, b, args.q), args.k = own_rows(shape, b, args.k);
  args.v = own_rows(shape, b, args.v), args.out = own_rows(shape, b, args.out);
  args.d_out = own_rows(shape, b, args.d_out), args.dq = own_rows(shape, b, args.dq);
  args.dk = own_rows(shape, b, args.dk), args.dv = own_rows(shape, b, args.dv);
  return args;
}

/// The same as one batch element, for passes that work on each query by itself.
TAPESTRY_HOST_DEVICE inline AttentionShape joined(AttentionShape shape) {
  if (shape.starts == nullptr) return shape;
  shape.batch = 1;
  shape.queries = shape.keys = shape.rows;
  shape.starts = nullptr;
  return shape;
}

/// The row of k and v, within batch element b, of its key j.
TAPESTRY_HOST_DEVICE inline int64_t key_row(const AttentionShape& shape, int64_t b, int64_t j) {
  return shape.key_rows == nullptr ? j : shape.key_rows[b * shape.key_rows_stride + j];
}

/// [first, last)
struct IndexRange {
  int64_t first, last;
  TAPESTRY_HOST_DEVICE bool has(int64_t i) const { return first <= i && i < last; }
};

/// The keys of batch element `b` that remain visible after causal mask, window, lengths and prefix:
/// every query sees one range of keys, and every key is seen by one range of queries. Ranges of
/// later queries or keys begin and end no earlier, and ranges of neighbours leave no gap between
/// them.
class VisibleKeys {
 public:
  TAPESTRY_HOST_DEVICE VisibleKeys(const AttentionShape& shape, int64_t b)
      : queries_(shape.queries),
        offset_(shape.keys - shape.queries),
        length_(shape.key_lengths == nullptr ? shape.keys
                                             : limited(shape.key_lengths[b], shape.keys)),
        prefix_(shape.causal && shape.prefix_lengths != nullptr ? shape.prefix_lengths[b] : 0),
        window_(shape.window > 0 && shape.window < shape.keys + shape.queries
                    ? shape.window - 1
                    : shape.keys + shape.queries),
        ahead_(shape.causal ? 0 : window_) {}

  /// Keys from this one on are masked for all queries.
  TAPESTRY_HOST_DEVICE int64_t length() const { return length_; }
  /// The keys that query t sees.
  TAPESTRY_HOST_DEVICE IndexRange of_query(int64_t t) const {
    const int64_t place = t + offset_;
    const int64_t end = std::max(place + ahead_ + 1, std::min(prefix_, place + window_ + 1));
    return {std::clamp<int64_t>(place - window_, 0, length_), std::clamp<int64_t>(end, 0, length_)};
  }
  /// The keys that any of queries [first, last) sees; they are at least one.
  TAPESTRY_HOST_DEVICE IndexRange of_queries(int64_t first, int64_t last) const {
    return {of_query(first).first, of_query(last - 1).last};
  }
  /// The queries that see any of keys [first, last), if one does; they are at least one key.
  TAPESTRY_HOST_DEVICE IndexRange queries_of(int64_t first, int64_t last) const {
    const int64_t lead = first < prefix_ ? window_ : ahead_;
    return {std::clamp<int64_t>(first - lead - offset_, 0, queries_),
            first < length_
                ? std::clamp<int64_t>(std::min(last, length_) + window_ - offset_, 0, queries_)
                : 0};
  }

 private:
  // n, at least 0 and at most `most`. By value: what std::clamp refers to would be in a GPU's local
  // memory.
  TAPESTRY_HOST_DEVICE static int64_t limited(int64_t n, int64_t most) {
    return n < 0 ? 0 : n > most ? most : n;
  }

  int64_t queries_, offset_, length_, prefix_;
  int64_t window_;  // how far a query sees back
  int64_t ahead_;   // how far it sees forward, the prefix apart
};

/// The range of a block of `count` keys that begins at `first`, relative to it.
TAPESTRY_HOST_DEVICE inline IndexRange within(const IndexRange& range, int64_t first,
                                              int64_t count) {
  return {std::clamp<int64_t>(range.first - first, 0, count),
          std::clamp<int64_t>(range.last - first, 0, count)};
}

/// Where the relative biases of query t and keys [key, key + n) lie in the (2R - 1) of a head: key
/// number i has number first + i for i in `inside`, before that the first one, then the last one.
struct RelativeRow {
  TAPESTRY_HOST_DEVICE RelativeRow(const AttentionShape& shape, int64_t reach, int64_t t,
                                   int64_t key, int64_t n)
      : width(2 * reach - 1), first(key - (t + shape.keys - shape.queries) + reach - 1) {
    inside.first = std::clamp<int64_t>(-first, 0, n);
    inside.last = std::clamp<int64_t>(width - first, inside.first, n);
  }

  int64_t width, first;
  IndexRange inside;
};

/// Prefetches the rows of the next head, a few at a time between computations. The rows of a head
/// lie too far apart for the processor's own prefetcher.
class RowPrefetcher {
 public:
  /// Adds `count` rows of one head; of a long operand only the first rows.
  template <class T>
  void add(const Rows<T>& rows, int64_t b, int64_t row, int64_t head, int64_t size, int64_t count) {
    if (rows.data == nullptr) return;
    constexpr int64_t kMostRows = 128;
    ranges_[ranges_count_++] = {reinterpret_cast<const char*>(at(rows, b, row, head, size)),
                                rows.row_stride * static_cast<int64_t>(sizeof(T)),
                                std::min(count, kMostRows), size * static_cast<int64_t>(sizeof(T))};
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
      for (int64_t byte = 0; byte < ranges_[current_].bytes; byte += 64)
        __builtin_prefetch(row + byte, 0, 2);
    }
  }

 private:
  struct Range {
    const char* data;
    int64_t stride, rows, bytes;
  };

  Range ranges_[8];
  int ranges_count_ = 0, current_ = 0;
  int64_t row_ = 0, rows_left_ = 0;
};

/// Up to this many queries packing the keys costs more than it saves.
inline constexpr int64_t kFewQueries = 3;

/// A block of weights (64 x 128) and all operands that it meets stay in L2.
inline constexpr int64_t kBackwardQueries = 64;
inline constexpr int64_t kBackwardKeys = 128;

/// Number of heads that one tile computes in turn, so that it can prefetch the next one: as many as
/// leave about 64 tiles.
inline int64_t heads_per_tile(int64_t tiles, int64_t heads) {
  return std::clamp<int64_t>(tiles / 64, 1, heads);
}

/// The index of the row of weights of (b, head, t) in the whole batch.
TAPESTRY_HOST_DEVICE inline int64_t weight_row(const AttentionShape& shape, int64_t b, int64_t head,
                                               int64_t t) {
  if (shape.starts != nullptr) return head * shape.rows + shape.starts[b] + t;
  return (b * shape.heads + head) * shape.queries + t;
}
/// The number of rows of weights of the whole batch.
inline int64_t weight_rows(const AttentionShape& shape) {
  return shape.heads * (shape.starts != nullptr ? shape.rows : shape.batch * shape.queries);
}
/// The index of the weight of key `key` in that row.
TAPESTRY_HOST_DEVICE inline int64_t weight_index(const AttentionShape& shape, int64_t row,
                                                 int64_t key) {
  return row * (shape.starts != nullptr ? shape.longest : shape.keys) + key;
}

}  // namespace tapestry
