// One block of queries against one block of keys in the backward pass of attention.
#if defined(TAPESTRY_KERNELS_ATTENTION_BACKWARD_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TAPESTRY_KERNELS_ATTENTION_BACKWARD_SIMD_INL_H_
#undef TAPESTRY_KERNELS_ATTENTION_BACKWARD_SIMD_INL_H_
#else
#define TAPESTRY_KERNELS_ATTENTION_BACKWARD_SIMD_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/kernels/attention/attention_bias_simd-inl.h"
#include "core/kernels/attention/attention_simd-inl.h"
#include "core/kernels/attention/attention_tiles.h"
#include "core/kernels/cpu/philox_simd-inl.h"
#include "core/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

// y (=|+=) scale * x for `count` rows; x packed.
template <class T>
HWY_INLINE void deliver_rows(const Wider<T>* x, int64_t x_stride, Wider<T> scale, T* y,
                             int64_t y_stride, int64_t count, int64_t size, Write write) {
  const Tag<T> d;
  const auto scales = hn::Set(d, scale);
  with_write(write, [&](auto mode) HWY_ATTR {
    for (int64_t r = 0; r < count; ++r) {
      each_vector(d, size, [&](auto io, int64_t i) HWY_ATTR {
        deliver(mode, io, d, hn::Mul(io.load(d, x + r * x_stride + i), scales),
                y + r * y_stride + i);
      });
    }
  });
}

// The weights of one query and a block of keys: scores and d_weights (dO V^T) become P' and dS; the
// keys that the query does not see get zeros. `factors` may be null.
template <class T>
HWY_INLINE void weight_gradients(T* scores, T* d_weights, const T* factors, const IndexRange& seen,
                                 int64_t cols, T scale, T lse, T delta) {
  const Tag<T> d;
  const auto scales = hn::Set(d, scale), shifts = hn::Set(d, lse), deltas = hn::Set(d, delta);
  T* const p_row = scores + seen.first;
  T* const ds_row = d_weights + seen.first;
  each_vector(d, seen.last - seen.first, [&](auto io, int64_t j) HWY_ATTR {
    const auto p = exp_negative(d, hn::MulSub(io.load(d, p_row + j), scales, shifts));
    auto kept = p, dp = io.load(d, ds_row + j);
    if (factors != nullptr) {
      const auto factor = io.load(d, factors + j);
      kept = hn::Mul(p, factor);
      dp = hn::Mul(dp, factor);
    }
    io.store(d, kept, p_row + j);
    io.store(d, hn::Mul(p, hn::Sub(dp, deltas)), ds_row + j);
  });
  for (T* const row : {scores, d_weights}) {
    if (seen.first > 0) std::fill(row, row + seen.first, T{0});
    if (seen.last < cols) std::fill(row + seen.last, row + cols, T{0});
  }
}

// One block of queries against one block of keys at a time: the packed operands, the weights
// between them, and the sums of the gradients.
template <class T>
class BackwardBlocks {
  using W = Wider<T>;

 public:
  BackwardBlocks(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t group)
      : shape_(shape),
        args_(args),
        b_(b),
        group_(group),
        size_(shape.head_size),
        value_size_(shape.value_size),
        visible_(shape, b),
        max_queries_(std::min(kBackwardQueries, shape.queries)),
        max_keys_(std::min(kBackwardKeys, shape.keys)),
        on_tiles_(kernels::attention_on_tiles<T>(shape)),
        weight_stride_(round_up(max_keys_, on_tiles_ ? kernels::kTileBlock : panel_width<T>())),
        dropout_(shape.dropout.p > 0 ? shape.dropout : Dropout{1, {}}),
        memory_(room()) {
    W* next = memory_.data();
    const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
    const auto rows = [&](int64_t count, int64_t size) {
      return packed_rows(take(packed_rows_room<T>(count, size)), size);
    };
    const auto transposed = [&](int64_t count, int64_t size) {
      return packed_transpose(take(packed_transpose_room<T>(count, size)), size);
    };
    if (on_tiles_) {
      tiles_.emplace(size_, value_size_, max_queries_, max_keys_);
    } else {
      k_ = rows(max_keys_, size_);
      k_transposed_ = transposed(max_keys_, size_);
      v_transposed_ = transposed(max_keys_, value_size_);
      q_ = rows(max_queries_, size_);
      d_out_ = rows(max_queries_, value_size_);
    }
    const auto sums = [&](int64_t count, int64_t size) {
      Packed<W> packed = packed_rows(next, size);
      if (on_tiles_) packed.stride = round_up(size, kernels::kTileBlock);
      take(whole(count) * packed.stride);
      return packed;
    };
    dk_ = sums(max_keys_, size_);
    dv_ = sums(max_keys_, value_size_);
    dq_ = sums(max_queries_, size_);
    weights_ = take(whole(max_queries_) * weight_stride_);
    d_scores_ = take(whole(max_queries_) * weight_stride_);
    slopes_ = shape.softcap > 0 ? take(whole(max_queries_) * weight_stride_) : nullptr;
    factors_ = take(kBackwardKeys + DropoutFactors<T>::kPadding);
    diagonals_ = take(kBackwardQueries + kBackwardKeys);
  }

  void load_keys(int64_t block) {
    first_key_ = block * kBackwardKeys;
    keys_ = std::min(kBackwardKeys, shape_.keys - first_key_);
    // Keys behind the last one that a query sees may hold anything, and are not read.
    const int64_t count = shape_.queries == 0 ? 0 : seen_by(0, shape_.queries).last;
    const T* const k = at(args_.k, b_, first_key_, group_, size_);
    const T* const v = at(args_.v, b_, first_key_, group_, value_size_);
    if constexpr (kernels::kHasTiles<T>) {
      if (tiles_) {
        return tiles_->load_keys({k, args_.k.row_stride}, {v, args_.v.row_stride}, count);
      }
    }
    if (args_.dq.data != nullptr) pack_rows(k, args_.k.row_stride, count, size_, k_);
    pack_transposed(k, args_.k.row_stride, count, size_, k_transposed_);
    pack_transposed(v, args_.v.row_stride, count, value_size_, v_transposed_);
  }

  // The blocks of queries that see a key of the loaded block. Some of their neighbours may, too.
  IndexRange blocks_of_queries() const {
    const IndexRange queries = visible_.queries_of(first_key_, first_key_ + keys_);
    return {queries.first / kBackwardQueries,
            (queries.last + kBackwardQueries - 1) / kBackwardQueries};
  }

  IndexRange keys_of_queries() const {
    return visible_.of_queries(first_query_, first_query_ + queries_);
  }

  void choose_queries(int64_t head, int64_t block) {
    head_ = head;
    first_query_ = block * kBackwardQueries;
    queries_ = std::min(kBackwardQueries, shape_.queries - first_query_);
    if (kept_) {
      const int64_t row = (head - kept_head_) * whole(shape_.queries) + first_query_;
      dq_.data = kept_->data() + row * dq_.stride;
    }
  }

  // From now on each block of queries of `count` heads from `head` on has its own sums of dq, which
  // stay until they are delivered.
  void keep_query_gradients(int64_t head, int64_t count) {
    kept_head_ = head;
    kept_.emplace(count * whole(shape_.queries) * dq_.stride);
  }

  void load_queries() {
    const T* const q = at(args_.q, b_, first_query_, head_, size_);
    const T* const d_out = at(args_.d_out, b_, first_query_, head_, value_size_);
    if constexpr (kernels::kHasTiles<T>) {
      if (tiles_) {
        return tiles_->load_queries({q, args_.q.row_stride}, {d_out, args_.d_out.row_stride},
                                    queries_);
      }
    }
    pack_rows(q, args_.q.row_stride, queries_, size_, q_);
    pack_rows(d_out, args_.d_out.row_stride, queries_, value_size_, d_out_);
  }

  // Whether a chosen query sees a key of the loaded block. Much below needs such blocks.
  bool queries_see_keys() const {
    const IndexRange seen = seen_by(first_query_, first_query_ + queries_);
    return seen.first < seen.last;
  }

  // Computes P' and dS of the loaded blocks, dS in front of any softcap. `deltas` are those of the
  // head.
  void compute_weights(const W* deltas, RowPrefetcher& prefetcher) {
    const int64_t height = strip_height();
    const int64_t rows_ahead = prefetcher.rows_left() * height / queries_ + 1;
    const bool changed = changes_scores(shape_, args_.bias);
    const W scale = changed ? W{1} : static_cast<W>(shape_.scale);
    const int64_t first_row = weight_row(shape_, b_, head_, first_query_);
    const W* const lse = args_.log_sum_exp + first_row;
    for (int64_t strip = 0; strip < queries_; strip += height) {
      const int64_t rows = std::min(height, queries_ - strip);
      const IndexRange all = seen_by(first_query_ + strip, first_query_ + strip + rows);
      const int64_t most = all.first < all.last ? all.last : 0;
      W* const weights = weights_ + strip * weight_stride_;
      W* const d_scores = d_scores_ + strip * weight_stride_;
      prefetcher.fetch(rows_ahead);
      multiply_weights(strip, rows, most, weights, d_scores);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = strip + r, t = first_query_ + i;
        IndexRange seen = seen_by(t, t + 1);
        if (changed) {
          // A row whose keys are all hidden has no weights.
          if (lse[i] == -std::numeric_limits<W>::infinity()) seen = {0, 0};
          W* const slopes = slopes_ != nullptr ? slopes_ + i * weight_stride_ : nullptr;
          changed_scores(shape_, args_.bias, b_, head_, t, first_key_ + seen.first,
                         seen.last - seen.first, weights + r * weight_stride_ + seen.first,
                         slopes != nullptr ? slopes + seen.first : nullptr);
        }
        const W* factors = nullptr;
        if (shape_.dropout.p > 0) {
          const int64_t index = weight_index(shape_, first_row + i, first_key_ + seen.first);
          factors = dropout_.fill(static_cast<uint64_t>(index), seen.last - seen.first, factors_);
        }
        weight_gradients(weights + r * weight_stride_, d_scores + r * weight_stride_, factors, seen,
                         keys_, scale, lse[i], deltas[t]);
      }
    }
  }

  // The dS of capped scores become those of the scores behind the softcap, if there is one.
  void chain_softcap() {
    if (slopes_ == nullptr) return;
    for (int64_t i = 0; i < queries_; ++i) {
      const int64_t t = first_query_ + i;
      const IndexRange seen = seen_by(t, t + 1);
      if (args_.log_sum_exp[weight_row(shape_, b_, head_, t)] ==
          -std::numeric_limits<W>::infinity()) {
        continue;  // it has no weights, and no slopes
      }
      multiply(d_scores_ + i * weight_stride_ + seen.first,
               slopes_ + i * weight_stride_ + seen.first, seen.last - seen.first);
    }
  }

  // Adds dS to `sums` (2R - 1), each element to its distance.
  HWY_NOINLINE void add_relative_gradients(double* sums) {
    const int64_t count = queries_ + keys_ - 1;
    std::fill_n(diagonals_, count, W{0});
    for (int64_t i = 0; i < queries_; ++i) {
      const IndexRange seen = seen_by(first_query_ + i, first_query_ + i + 1);
      add_row(d_scores_ + i * weight_stride_ + seen.first,
              diagonals_ + queries_ - 1 - i + seen.first, seen.last - seen.first);
    }
    // The first diagonal is the last query with the first key.
    const RelativeRow row(shape_, args_.bias.reach, first_query_ + queries_ - 1, first_key_, count);
    for (int64_t i = 0; i < count; ++i) {
      sums[std::clamp<int64_t>(row.first + i, 0, row.width - 1)] += diagonals_[i];
    }
  }

  void clear_key_gradients() {
    std::fill_n(dk_.data, keys_ * dk_.stride, W{0});
    std::fill_n(dv_.data, keys_ * dv_.stride, W{0});
  }

  void add_key_gradients() {
    const IndexRange seen = seen_by(first_query_, first_query_ + queries_);
    if constexpr (kernels::kHasTiles<T>) {
      if (tiles_) {
        const int64_t from = seen.first / kernels::kTileBlock * kernels::kTileBlock;
        return tiles_->add_key_gradients({weights_, weight_stride_}, {d_scores_, weight_stride_},
                                         {from, seen.last},
                                         args_.dk.data != nullptr ? dk_.data : nullptr, dk_.stride,
                                         args_.dv.data != nullptr ? dv_.data : nullptr, dv_.stride);
      }
    }
    for (int64_t strip = seen.first; strip < seen.last; strip += kTileRows) {
      const int64_t rows = std::min(kTileRows, seen.last - strip);
      // Other queries see no key of the strip.
      const int64_t key = first_key_ + strip;
      const IndexRange viewers =
          within(visible_.queries_of(key, key + rows), first_query_, queries_);
      if (args_.dv.data != nullptr)
        add_strip(weights_, d_out_, value_size_, strip, rows, viewers, dv_);
      if (args_.dk.data != nullptr) add_strip(d_scores_, q_, size_, strip, rows, viewers, dk_);
    }
  }

  void deliver_key_gradients() const {
    if (args_.dk.data != nullptr) {
      deliver_rows(dk_.data, dk_.stride, static_cast<W>(shape_.scale),
                   at(args_.dk, b_, first_key_, group_, size_), args_.dk.row_stride, keys_, size_,
                   args_.dk_write);
    }
    if (args_.dv.data != nullptr) {
      deliver_rows(dv_.data, dv_.stride, W{1}, at(args_.dv, b_, first_key_, group_, value_size_),
                   args_.dv.row_stride, keys_, value_size_, args_.dv_write);
    }
  }

  // dq of the loaded queries: the first block of keys sets it (not `add`), the others add.
  void sum_query_gradients(bool add) {
    const int64_t height = strip_height();
    for (int64_t strip = 0; strip < queries_; strip += height) {
      const int64_t rows = std::min(height, queries_ - strip);
      const IndexRange seen = seen_by(first_query_ + strip, first_query_ + strip + rows);
      if constexpr (kernels::kHasTiles<T>) {
        if (tiles_) {
          const int64_t from = seen.first / kernels::kTileDepth * kernels::kTileDepth;
          tiles_->query_gradients({d_scores_ + strip * weight_stride_ + from, weight_stride_}, rows,
                                  {from, std::max(from, seen.last)}, dq_.data + strip * dq_.stride,
                                  dq_.stride, add);
          continue;
        }
      }
      Packed<W> keys = k_;
      keys.data += seen.first * k_.stride;
      strip_product<Left::kAsStored>(
          rows, size_, seen.last - seen.first, d_scores_ + strip * weight_stride_ + seen.first,
          weight_stride_, keys, dq_.data + strip * dq_.stride, dq_.stride, add);
    }
  }

  void deliver_query_gradients(Write write) const {
    deliver_rows(dq_.data, dq_.stride, static_cast<W>(shape_.scale),
                 at(args_.dq, b_, first_query_, head_, size_), args_.dq.row_stride, queries_, size_,
                 write);
  }

  void clear_query_gradients() { std::fill_n(dq_.data, queries_ * dq_.stride, W{0}); }

 private:
  int64_t room() const {
    const int64_t operands = on_tiles_ ? 0
                                       : packed_rows_room<T>(max_keys_ + max_queries_, size_) +
                                             packed_rows_room<T>(max_queries_, value_size_) +
                                             packed_transpose_room<T>(max_keys_, size_) +
                                             packed_transpose_room<T>(max_keys_, value_size_);
    const int64_t step = on_tiles_ ? kernels::kTileBlock : lanes_of<T>();
    const int64_t sums = (whole(max_keys_) + whole(max_queries_)) * round_up(size_, step) +
                         whole(max_keys_) * round_up(value_size_, step);
    const int64_t tiles_of_weights = shape_.softcap > 0 ? 3 : 2;
    return operands + sums + tiles_of_weights * whole(max_queries_) * weight_stride_ +
           kBackwardKeys + DropoutFactors<T>::kPadding + kBackwardQueries + kBackwardKeys;
  }

  int64_t strip_height() const { return on_tiles_ ? kernels::kTileBlock : kTileRows; }
  // Rows for whole blocks of tiles.
  int64_t whole(int64_t rows) const {
    return on_tiles_ ? round_up(rows, kernels::kTileBlock) : rows;
  }

  // q k^T and dO v^T of a strip of queries and the first `keys` keys.
  void multiply_weights(int64_t strip, int64_t rows, int64_t keys, W* weights, W* d_scores) {
    if constexpr (kernels::kHasTiles<T>) {
      if (tiles_) return tiles_->weights(strip, keys, weights, d_scores, weight_stride_);
    }
    strip_product<Left::kAsStored>(rows, keys, size_, q_.data + strip * q_.stride, q_.stride,
                                   k_transposed_, weights, weight_stride_, false);
    strip_product<Left::kAsStored>(rows, keys, value_size_, d_out_.data + strip * d_out_.stride,
                                   d_out_.stride, v_transposed_, d_scores, weight_stride_, false);
  }

  // The keys of the loaded block that queries [first, last) see, relative to its first one.
  IndexRange seen_by(int64_t first, int64_t last) const {
    return within(visible_.of_queries(first, last), first_key_, keys_);
  }

  // sums (keys strip to strip + rows) += left^T right over the queries of `viewers`.
  void add_strip(const W* left, const Packed<W>& right, int64_t size, int64_t strip, int64_t rows,
                 const IndexRange& viewers, const Packed<W>& sums) {
    if (viewers.first >= viewers.last) return;
    Packed<W> seen = right;
    seen.data += viewers.first * right.stride;
    strip_product<Left::kTransposed>(rows, size, viewers.last - viewers.first,
                                     left + viewers.first * weight_stride_ + strip, weight_stride_,
                                     seen, sums.data + strip * sums.stride, sums.stride, true);
  }

  const AttentionShape& shape_;
  const AttentionBackward<T>& args_;
  const int64_t b_, group_, size_, value_size_;
  const VisibleKeys visible_;
  const int64_t max_queries_, max_keys_;
  const bool on_tiles_;
  const int64_t weight_stride_;
  const DropoutFactors<T> dropout_;
  Scratch<W> memory_;
  std::optional<Scratch<W>> kept_;
  int64_t kept_head_ = 0, first_key_ = 0, keys_ = 0, head_ = 0, first_query_ = 0, queries_ = 0;
  Packed<W> k_, k_transposed_, v_transposed_, dk_, dv_, q_, d_out_, dq_;
  W *weights_, *d_scores_, *slopes_, *factors_, *diagonals_;
  std::optional<kernels::AttentionBackwardTileProducts> tiles_;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#endif  // include guard
