// The products of attention on tiles (cpu/tile_product.h): a strip of queries against a block of
// keys. Operands are packed from the rows of one head. Results go to rows that have room for whole
// blocks: their number and their width are rounded up to kTileBlock.
#pragma once

#include <optional>
#include <type_traits>

#include "core/kernels/attention/attention_common.h"
#include "core/kernels/cpu/rounded_product.h"
#include "core/kernels/cpu/tile_product.h"

namespace tapestry::kernels {

/// Tiles multiply tensors of this type.
template <class T>
inline constexpr bool kHasTiles = std::is_same_v<T, BFloat16>;

/// True if attention's products of T run on tiles.
template <class T>
bool attention_on_tiles(const AttentionShape& shape) {
  return kHasTiles<T> && shape.queries > kFewQueries && bfloat16_runs_on_tiles();
}

/// Rows of one operand of one head, `stride` elements apart. Those of weights are float, and are
/// rounded.
class HeadRows {
 public:
  HeadRows(const float* data, int64_t stride) : rows_(data, stride, true) {}
  HeadRows(const BFloat16* data, int64_t stride) : rows_(data, stride, true) {}

  /// As a factor whose inner size is that of a row, or the number of rows.
  Factor along_k() const { return rows_; }
  Factor across_k() const {
    Factor columns = rows_;
    columns.along_k = false;
    return columns;
  }

 private:
  Factor rows_;
};

/// Products of the forward pass. This class and the next belong to the thread that made them.
class AttentionTileProducts {
 public:
  /// Makes room for blocks of at most `most_keys` keys.
  AttentionTileProducts(int64_t size, int64_t value_size, int64_t most_keys);

  void load_keys(HeadRows k, HeadRows v, int64_t count);
  /// scores (32, keys) = q k^T of `count` <= 32 queries and the first `keys` keys.
  void scores(HeadRows q, int64_t count, int64_t keys, float* scores, int64_t stride) const;
  /// out (32, value_size) (=|+=) weights v; the weights begin at key keys.begin, a multiple of
  /// kTileDepth.
  void add_values(HeadRows weights, int64_t count, Range keys, float* out, int64_t stride,
                  bool add) const;

 private:
  int64_t size_, value_size_;
  TileSession session_;
  Scratch<BFloat16> memory_;
  BFloat16 *k_memory_, *v_memory_, *left_memory_;
  std::optional<TileOperand> k_, v_;
};

/// Products of the backward pass; the names are those of attention_backward_simd-inl.h.
class AttentionBackwardTileProducts {
 public:
  /// Makes room for blocks of at most `most_queries` and `most_keys`.
  AttentionBackwardTileProducts(int64_t size, int64_t value_size, int64_t most_queries,
                                int64_t most_keys);

  void load_keys(HeadRows k, HeadRows v, int64_t count);
  void load_queries(HeadRows q, HeadRows d_out, int64_t count);
  /// scores = q k^T and d_weights = dO v^T, of at most 32 queries from `query` on and the first
  /// `keys` keys.
  void weights(int64_t query, int64_t keys, float* scores, float* d_weights, int64_t stride) const;
  /// dv += P'^T dO and dk += dS^T q for keys of the block. A null sum is not computed.
  void add_key_gradients(HeadRows weights, HeadRows d_scores, Range keys, float* dk,
                         int64_t dk_stride, float* dv, int64_t dv_stride) const;
  /// dq (32, size) (=|+=) dS k of `count` <= 32 queries; `d_scores` begins at key keys.begin, a
  /// multiple of kTileDepth.
  void query_gradients(HeadRows d_scores, int64_t count, Range keys, float* dq, int64_t stride,
                       bool add) const;

 private:
  int64_t size_, value_size_, queries_ = 0;
  TileSession session_;
  Scratch<BFloat16> memory_;
  BFloat16 *k_memory_, *v_memory_, *dq_memory_, *q_memory_, *d_out_memory_, *dk_memory_,
      *dv_memory_, *left_memory_;
  std::optional<TileOperand> k_for_scores_, v_for_weights_, k_for_dq_;
  std::optional<TileOperand> q_for_scores_, d_out_for_weights_, q_for_dk_, d_out_for_dv_;
};

}  // namespace tapestry::kernels
