// The backward pass of attention (Dao et al. 2022, B.2), by blocks of queries and keys. With the
// weights P = exp(scale q k^T - lse), P' = dropout(P) and delta = rowsum(dO * O):
//   dV = P'^T dO,  dS = P * (dropout(dO V^T) - delta),  dQ = scale dS K,  dK = scale dS^T Q.
#include <algorithm>
#include <utility>

#include "core/kernels/attention/attention.h"
#include "core/kernels/attention/attention_common.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "core/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/attention/attention_backward_cpu.cpp"
#include "hwy/foreach_target.h"

#include "core/kernels/attention/attention_simd-inl.h"
#include "core/kernels/cpu/philox_simd-inl.h"
#include "core/kernels/cpu/simd-inl.h"

#ifndef TAPESTRY_ATTENTION_BACKWARD_TILES
#define TAPESTRY_ATTENTION_BACKWARD_TILES
namespace tapestry {

template <class T>
struct AttentionBackwardTiles {
  // All gradients of key/value heads [group, last_group) and their query heads; computes their
  // deltas itself.
  void (*groups)(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t group, int64_t last_group);
  // Only dk and dv of one block of keys, or only dq of one block of queries.
  void (*keys)(const AttentionShape& shape, const AttentionBackward<T>& args, const T* deltas,
               int64_t b, int64_t group, int64_t block);
  void (*queries)(const AttentionShape& shape, const AttentionBackward<T>& args, const T* deltas,
                  int64_t b, int64_t head, int64_t block);
  // rowsum(dO * O) of one head.
  void (*deltas)(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t head, T* deltas);
};

// A block of weights (64 x 128) and all operands that it meets stay in L2.
constexpr int64_t kBackwardQueries = 64;
constexpr int64_t kBackwardKeys = 128;

}  // namespace tapestry
#endif

HWY_BEFORE_NAMESPACE();
namespace tapestry {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE T dot(const T* a, const T* b, int64_t n) {
  const Tag<T> d;
  auto sums = hn::Zero(d);
  each_vector(d, n, [&](auto io, int64_t i) HWY_ATTR {
    sums = hn::MulAdd(io.load(d, a + i), io.load(d, b + i), sums);
  });
  return sum_lanes(d, sums);
}

template <class T>
void head_deltas(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t head, T* deltas) {
  const int64_t size = shape.head_size;
  for (int64_t t = 0; t < shape.queries; ++t) {
    deltas[t] = dot(at(args.out, b, t, head, size), at(args.d_out, b, t, head, size), size);
  }
}

// y (=|+=) scale * x for `count` rows; x packed.
template <class T>
HWY_INLINE void deliver_rows(const T* x, int64_t x_stride, T scale, T* y, int64_t y_stride,
                             int64_t count, int64_t size, Write write) {
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

// The weights of one query and a block of keys: scores and d_weights (dO V^T) become P' and dS.
// `factors` may be null.
template <class T>
HWY_INLINE void weight_gradients(T* scores, T* d_weights, const T* factors, int64_t seen,
                                 int64_t cols, T scale, T lse, T delta) {
  const Tag<T> d;
  const auto scales = hn::Set(d, scale), shifts = hn::Set(d, lse), deltas = hn::Set(d, delta);
  each_vector(d, seen, [&](auto io, int64_t j) HWY_ATTR {
    const auto p = exp_negative(d, hn::MulSub(io.load(d, scores + j), scales, shifts));
    auto kept = p, dp = io.load(d, d_weights + j);
    if (factors != nullptr) {
      const auto factor = io.load(d, factors + j);
      kept = hn::Mul(p, factor);
      dp = hn::Mul(dp, factor);
    }
    io.store(d, kept, scores + j);
    io.store(d, hn::Mul(p, hn::Sub(dp, deltas)), d_weights + j);
  });
  std::fill(scores + seen, scores + cols, T{0});
  std::fill(d_weights + seen, d_weights + cols, T{0});
}

// One block of queries against one block of keys at a time: the packed operands, the weights
// between them, and the sums of the gradients.
template <class T>
class BackwardBlocks {
 public:
  BackwardBlocks(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                 int64_t group)
      : shape_(shape),
        args_(args),
        b_(b),
        group_(group),
        size_(shape.head_size),
        length_(key_length(shape, b)),
        max_queries_(std::min(kBackwardQueries, shape.queries)),
        max_keys_(std::min(kBackwardKeys, shape.keys)),
        weight_stride_(round_up(max_keys_, panel_width<T>())),
        dropout_(shape.dropout.p > 0 ? shape.dropout : Dropout{1, {}}),
        memory_(room()) {
    T* next = memory_.data();
    const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
    const int64_t key_rows = packed_rows_room<T>(max_keys_, size_);
    const int64_t query_rows = packed_rows_room<T>(max_queries_, size_);
    const int64_t transposed = packed_transpose_room<T>(max_keys_, size_);
    k_ = packed_rows(take(key_rows), size_);
    k_transposed_ = packed_transpose(take(transposed), size_);
    v_transposed_ = packed_transpose(take(transposed), size_);
    dk_ = take(key_rows);
    dv_ = take(key_rows);
    q_ = packed_rows(take(query_rows), size_);
    d_out_ = packed_rows(take(query_rows), size_);
    dq_ = take(query_rows);
    weights_ = take(max_queries_ * weight_stride_);
    d_scores_ = take(max_queries_ * weight_stride_);
    factors_ = take(kBackwardKeys + DropoutFactors<T>::kPadding);
  }

  void load_keys(int64_t block) {
    first_key_ = block * kBackwardKeys;
    keys_ = std::min(kBackwardKeys, shape_.keys - first_key_);
    const int64_t seen = std::clamp<int64_t>(length_ - first_key_, 0, keys_);
    const T* const k = at(args_.k, b_, first_key_, group_, size_);
    const T* const v = at(args_.v, b_, first_key_, group_, size_);
    if (args_.dq.data != nullptr) pack_rows(k, args_.k.row_stride, seen, size_, k_);
    pack_transposed(k, args_.k.row_stride, seen, size_, k_transposed_);
    pack_transposed(v, args_.v.row_stride, seen, size_, v_transposed_);
  }

  // Whether any query sees a key of the loaded block. The functions below need such a block.
  bool keys_are_seen() const {
    return first_key_ < visible_keys(shape_, shape_.queries - 1, length_);
  }

  void load_queries(int64_t head, int64_t block) {
    head_ = head;
    first_query_ = block * kBackwardQueries;
    queries_ = std::min(kBackwardQueries, shape_.queries - first_query_);
    pack_rows(at(args_.q, b_, first_query_, head, size_), args_.q.row_stride, queries_, size_, q_);
    pack_rows(at(args_.d_out, b_, first_query_, head, size_), args_.d_out.row_stride, queries_,
              size_, d_out_);
  }

  // How many keys of the block the query sees.
  int64_t seen_by(int64_t query) const {
    return std::clamp<int64_t>(visible_keys(shape_, query, length_) - first_key_, 0, keys_);
  }

  // Computes P' and dS of the loaded blocks. `deltas` are those of the head.
  void compute_weights(const T* deltas, RowPrefetcher& prefetcher) {
    const int64_t rows_ahead = prefetcher.rows_left() * kTileRows / queries_ + 1;
    const T scale = static_cast<T>(shape_.scale);
    const int64_t first_row = weight_row(shape_, b_, head_, first_query_);
    const T* const lse = args_.log_sum_exp + first_row;
    for (int64_t strip = 0; strip < queries_; strip += kTileRows) {
      const int64_t rows = std::min(kTileRows, queries_ - strip);
      const int64_t most = seen_by(first_query_ + strip + rows - 1);
      T* const weights = weights_ + strip * weight_stride_;
      T* const d_scores = d_scores_ + strip * weight_stride_;
      prefetcher.fetch(rows_ahead);
      strip_product<Left::kAsStored>(rows, most, size_, q_.data + strip * q_.stride, q_.stride,
                                     k_transposed_, weights, weight_stride_, false);
      strip_product<Left::kAsStored>(rows, most, size_, d_out_.data + strip * d_out_.stride,
                                     d_out_.stride, v_transposed_, d_scores, weight_stride_, false);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = strip + r, seen = seen_by(first_query_ + i);
        const T* factors = nullptr;
        if (shape_.dropout.p > 0) {
          const int64_t index = (first_row + i) * shape_.keys + first_key_;
          factors = dropout_.fill(static_cast<uint64_t>(index), seen, factors_);
        }
        weight_gradients(weights + r * weight_stride_, d_scores + r * weight_stride_, factors, seen,
                         keys_, scale, lse[i], deltas[first_query_ + i]);
      }
    }
  }

  void clear_key_gradients() {
    std::fill_n(dk_, keys_ * k_.stride, T{0});
    std::fill_n(dv_, keys_ * k_.stride, T{0});
  }

  void add_key_gradients() {
    const int64_t seen = seen_by(first_query_ + queries_ - 1);
    for (int64_t strip = 0; strip < seen; strip += kTileRows) {
      const int64_t rows = std::min(kTileRows, seen - strip);
      // Queries before this one see no key of the strip.
      const int64_t from =
          std::max<int64_t>(0, first_viewer(shape_, first_key_ + strip) - first_query_);
      if (args_.dv.data != nullptr) add_strip(weights_, d_out_, strip, rows, from, dv_);
      if (args_.dk.data != nullptr) add_strip(d_scores_, q_, strip, rows, from, dk_);
    }
  }

  void deliver_key_gradients() const {
    if (args_.dk.data != nullptr) {
      deliver_rows(dk_, k_.stride, static_cast<T>(shape_.scale),
                   at(args_.dk, b_, first_key_, group_, size_), args_.dk.row_stride, keys_, size_,
                   args_.dk_write);
    }
    if (args_.dv.data != nullptr) {
      deliver_rows(dv_, k_.stride, T{1}, at(args_.dv, b_, first_key_, group_, size_),
                   args_.dv.row_stride, keys_, size_, args_.dv_write);
    }
  }

  // dq of the loaded queries: the first block of keys sets it (not `add`), the others add.
  void sum_query_gradients(bool add) {
    for (int64_t strip = 0; strip < queries_; strip += kTileRows) {
      const int64_t rows = std::min(kTileRows, queries_ - strip);
      strip_product<Left::kAsStored>(rows, size_, seen_by(first_query_ + strip + rows - 1),
                                     d_scores_ + strip * weight_stride_, weight_stride_, k_,
                                     dq_ + strip * k_.stride, k_.stride, add);
    }
  }

  void deliver_query_gradients(Write write) const {
    deliver_rows(dq_, k_.stride, static_cast<T>(shape_.scale),
                 at(args_.dq, b_, first_query_, head_, size_), args_.dq.row_stride, queries_, size_,
                 write);
  }

  void clear_query_gradients() { std::fill_n(dq_, queries_ * k_.stride, T{0}); }

  bool queries_see_keys() const { return seen_by(first_query_ + queries_ - 1) > 0; }

 private:
  int64_t room() const {
    return 3 * packed_rows_room<T>(max_keys_, size_) +
           2 * packed_transpose_room<T>(max_keys_, size_) +
           3 * packed_rows_room<T>(max_queries_, size_) + 2 * max_queries_ * weight_stride_ +
           kBackwardKeys + DropoutFactors<T>::kPadding;
  }

  // sums (keys strip to strip + rows) += left^T right over the queries from `from` on.
  void add_strip(const T* left, const Packed<T>& right, int64_t strip, int64_t rows, int64_t from,
                 T* sums) {
    if (from >= queries_) return;
    Packed<T> later = right;
    later.data += from * right.stride;
    strip_product<Left::kTransposed>(rows, size_, queries_ - from,
                                     left + from * weight_stride_ + strip, weight_stride_, later,
                                     sums + strip * k_.stride, k_.stride, true);
  }

  const AttentionShape& shape_;
  const AttentionBackward<T>& args_;
  const int64_t b_, group_, size_, length_, max_queries_, max_keys_, weight_stride_;
  const DropoutFactors<T> dropout_;
  Scratch<T> memory_;
  int64_t first_key_ = 0, keys_ = 0, head_ = 0, first_query_ = 0, queries_ = 0;
  Packed<T> k_, k_transposed_, v_transposed_, q_, d_out_;
  T *dk_, *dv_, *dq_, *weights_, *d_scores_, *factors_;
};

template <class T>
void backward_group(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                    int64_t group, RowPrefetcher& prefetcher) {
  const int64_t shared = shape.heads / shape.kv_heads;
  const int64_t query_blocks = (shape.queries + kBackwardQueries - 1) / kBackwardQueries;
  const int64_t key_blocks = (shape.keys + kBackwardKeys - 1) / kBackwardKeys;
  BackwardBlocks<T> blocks(shape, args, b, group);
  Scratch<T> deltas(shared * shape.queries);
  for (int64_t h = 0; h < shared; ++h) {
    head_deltas(shape, args, b, group * shared + h, deltas.data() + h * shape.queries);
  }
  // At least one round: without keys it writes zeros to dq.
  for (int64_t kb = 0; kb < std::max<int64_t>(1, key_blocks); ++kb) {
    blocks.load_keys(kb);
    blocks.clear_key_gradients();
    for (int64_t h = 0; h < shared && (kb == 0 || blocks.keys_are_seen()); ++h) {
      for (int64_t qb = 0; qb < query_blocks; ++qb) {
        blocks.load_queries(group * shared + h, qb);
        if (blocks.queries_see_keys()) {
          blocks.compute_weights(deltas.data() + h * shape.queries, prefetcher);
          blocks.add_key_gradients();
          if (args.dq.data == nullptr) continue;
          blocks.sum_query_gradients(false);
          blocks.deliver_query_gradients(kb == 0 ? args.dq_write : Write::kAdd);
        } else if (kb == 0 && args.dq.data != nullptr && args.dq_write == Write::kSet) {
          blocks.clear_query_gradients();
          blocks.deliver_query_gradients(Write::kSet);
        }
      }
    }
    blocks.deliver_key_gradients();
  }
}

template <class T>
void backward_groups(const AttentionShape& shape, const AttentionBackward<T>& args, int64_t b,
                     int64_t group, int64_t last_group) {
  const int64_t size = shape.head_size, shared = shape.heads / shape.kv_heads;
  for (; group < last_group; ++group) {
    RowPrefetcher prefetcher;
    const int64_t next = group + 1;
    if (next < last_group) {
      for (const auto& rows : {args.out, args.d_out, args.q}) {
        prefetcher.add(rows, b, 0, next * shared, size, shape.queries);
      }
      for (const auto& rows : {args.k, args.v}) prefetcher.add(rows, b, 0, next, size, shape.keys);
      prefetcher.add(args.dq, b, 0, next * shared, size, shape.queries);
      for (const auto& rows : {args.dk, args.dv})
        prefetcher.add(rows, b, 0, next, size, shape.keys);
    }
    backward_group(shape, args, b, group, prefetcher);
  }
}

template <class T>
void backward_keys(const AttentionShape& shape, const AttentionBackward<T>& args, const T* deltas,
                   int64_t b, int64_t group, int64_t block) {
  const int64_t shared = shape.heads / shape.kv_heads;
  const int64_t query_blocks = (shape.queries + kBackwardQueries - 1) / kBackwardQueries;
  BackwardBlocks<T> blocks(shape, args, b, group);
  blocks.load_keys(block);
  blocks.clear_key_gradients();
  const int64_t from = first_viewer(shape, block * kBackwardKeys) / kBackwardQueries;
  RowPrefetcher nothing;
  for (int64_t h = 0; h < shared && blocks.keys_are_seen(); ++h) {
    for (int64_t qb = from; qb < query_blocks; ++qb) {
      blocks.load_queries(group * shared + h, qb);
      if (!blocks.queries_see_keys()) continue;
      blocks.compute_weights(deltas + h * shape.queries, nothing);
      blocks.add_key_gradients();
    }
  }
  blocks.deliver_key_gradients();
}

template <class T>
void backward_queries(const AttentionShape& shape, const AttentionBackward<T>& args,
                      const T* deltas, int64_t b, int64_t head, int64_t block) {
  BackwardBlocks<T> blocks(shape, args, b, head / (shape.heads / shape.kv_heads));
  blocks.load_queries(head, block);
  bool add = false;
  RowPrefetcher nothing;
  for (int64_t kb = 0; kb * kBackwardKeys < shape.keys; ++kb) {
    blocks.load_keys(kb);
    if (!blocks.queries_see_keys()) break;
    blocks.compute_weights(deltas, nothing);
    blocks.sum_query_gradients(add);
    add = true;
  }
  if (!add) blocks.clear_query_gradients();
  blocks.deliver_query_gradients(args.dq_write);
}

template <class T>
constexpr AttentionBackwardTiles<T> kFunctions = {backward_groups<T>, backward_keys<T>,
                                                  backward_queries<T>, head_deltas<T>};

const PerType<AttentionBackwardTiles>* backward_tiles() {
  static constexpr PerType<AttentionBackwardTiles> functions = {kFunctions<float>,
                                                                kFunctions<double>};
  return &functions;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tapestry
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tapestry {
namespace {

HWY_EXPORT(backward_tiles);

// With fewer key/value heads in the batch, a tile per head would leave threads idle. Then dk and dv
// are computed by blocks of keys and dq by blocks of queries; each computes the weights again.
constexpr int64_t kLeastGroups = 8;

}  // namespace

namespace kernels {

template <class T>
void attention_backward(Cpu, const AttentionShape& shape, const AttentionBackward<T>& args) {
  const ProfileScope profile(Part::kAttention);
  const AttentionBackwardTiles<T>& tiles = HWY_DYNAMIC_DISPATCH(backward_tiles)()->of<T>();
  const int64_t groups = shape.batch * shape.kv_heads, heads = shape.batch * shape.heads;
  const int64_t query_blocks = (shape.queries + kBackwardQueries - 1) / kBackwardQueries;
  const int64_t key_blocks = (shape.keys + kBackwardKeys - 1) / kBackwardKeys;
  if (groups >= kLeastGroups || (query_blocks <= 1 && key_blocks <= 1)) {
    const int64_t each = heads_per_tile(groups, shape.kv_heads);
    const int64_t pieces = (shape.kv_heads + each - 1) / each;
    parallel_for(shape.batch * pieces, [&](int64_t tile) {
      const int64_t group = tile % pieces * each;
      tiles.groups(shape, args, tile / pieces, group, std::min(group + each, shape.kv_heads));
    });
    return;
  }
  Scratch<T> deltas(heads * shape.queries);
  parallel_for(heads, [&](int64_t head) {
    tiles.deltas(shape, args, head / shape.heads, head % shape.heads,
                 deltas.data() + head * shape.queries);
  });
  const bool wants_keys = args.dk.data != nullptr || args.dv.data != nullptr;
  const int64_t key_tiles = wants_keys ? groups * key_blocks : 0;
  const int64_t query_tiles = args.dq.data != nullptr ? heads * query_blocks : 0;
  parallel_for(key_tiles + query_tiles, [&](int64_t tile) {
    if (tile < key_tiles) {
      const int64_t group = tile / key_blocks, first_head = group * (shape.heads / shape.kv_heads);
      tiles.keys(shape, args, deltas.data() + first_head * shape.queries, group / shape.kv_heads,
                 group % shape.kv_heads, tile % key_blocks);
    } else {
      const int64_t head = (tile - key_tiles) / query_blocks;
      tiles.queries(shape, args, deltas.data() + head * shape.queries, head / shape.heads,
                    head % shape.heads, (tile - key_tiles) % query_blocks);
    }
  });
}

template void attention_backward(Cpu, const AttentionShape&, const AttentionBackward<float>&);
template void attention_backward(Cpu, const AttentionShape&, const AttentionBackward<double>&);

}  // namespace kernels
}  // namespace tapestry
#endif  // HWY_ONCE
