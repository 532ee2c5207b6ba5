// Fused scaled dot-product attention (Vaswani et al. 2017): tiled, with online softmax (Milakov and
// Gimelshein 2018), so that no array of size T x S is stored (FlashAttention, Dao et al. 2022).
// Heads are addressed inside (B, T, H*K) rows by stride, so no operand is ever permuted and q, k, v
// may be column ranges of one fused projection.
#pragma once

#include "core/base/host_device.h"
#include "core/kernels/common.h"

namespace tapestry {

/// One operand (q, k, v, out or a gradient): element (b, t, h, i) is at
/// data[b * batch_stride + t * row_stride + h * size + i], size that of its heads.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t row_stride = 0;
  int64_t batch_stride = 0;
};

struct AttentionShape {
  int64_t batch = 0;       ///< B
  int64_t queries = 0;     ///< T
  int64_t keys = 0;        ///< S
  int64_t heads = 0;       ///< H query heads
  int64_t kv_heads = 0;    ///< G key/value heads; G divides H, head h reads group h / (H / G)
  int64_t head_size = 0;   ///< K, of queries and keys
  int64_t value_size = 0;  ///< of a head of v and out
  double scale = 1;        ///< factor of the scores, usually 1 / sqrt(K)
  /// A scaled score s becomes softcap * tanh(s / softcap) before any bias is added (Gemma 2:
  /// Riviere et al. 2024); 0: it stays.
  double softcap = 0;
  /// Query t stands at key t + (S - T): the last query at the last key. Causal: it sees no key
  /// behind that.
  bool causal = false;
  /// It sees the keys that are less than `window` away (Beltagy et al. 2020); 0: all.
  int64_t window = 0;
  /// (B): keys at or after key_lengths[b] are masked; null masks none.
  const int32_t* key_lengths = nullptr;
  /// (B): under a causal mask all queries see the keys before prefix_lengths[b], too, as far as the
  /// window lets them (prefix language model, Raffel et al. 2020, 3.2.1); may be null.
  const int32_t* prefix_lengths = nullptr;
  /// (B, S) for a step of decoding: T is 1, batch element b has the first key_lengths[b] keys, its
  /// query stands at the last of them, and key j is row key_rows[b * S + j] of k and v, which have
  /// no batches. Null: every batch element has its own S rows, in order.
  const int32_t* key_rows = nullptr;
  int64_t key_rows_stride = 0;  ///< S of key_rows
  /// (B + 1) for sequences end to end: batch element b is rows [starts[b], starts[b + 1]) of one
  /// batch, `queries` and `keys` are those of the longest. No element is empty, and they leave no
  /// row out. Null: every batch element has its own rows.
  const int32_t* starts = nullptr;
  int64_t rows = 0;     ///< of all these sequences
  int64_t longest = 0;  ///< rows of the longest of them
  /// Dropout of the attention weights: weight (b, h, t, j) has draw weight_index(..).
  Dropout dropout;
};

/// The terms that are added to the scaled scores. Nothing here has storage of the kernel's own.
template <class T>
struct ScoreBias {
  /// A dense mask, one of the two or none: element (b, h, t, j) is at b * batch_stride + h *
  /// head_stride + t * row_stride + j. `added` is added to the score; -inf hides the key.
  const T* added = nullptr;
  const int32_t* seen = nullptr;  ///< 0 hides the key
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  /// (H, 2R - 1), R = reach: a number for each distance of key j from query t, d = j - (t + S - T).
  /// Head h adds relative[h][clamp(d, 1 - R, R - 1) + R - 1]. May be null.
  const T* relative = nullptr;
  int64_t reach = 0;

  TAPESTRY_HOST_DEVICE bool any() const {
    return added != nullptr || seen != nullptr || relative != nullptr;
  }
};

template <class T>
struct AttentionForward {
  Rows<const T> q, k, v;
  Rows<T> out;
  /// (B, H, T), of sequences end to end (H, rows), for backward; may be null.
  Wider<T>* log_sum_exp = nullptr;
  ScoreBias<T> bias = {};
};

/// dq, dk, dv, d_relative (=|+=) the gradients. One with a null data pointer is not computed.
template <class T>
struct AttentionBackward {
  Rows<const T> q, k, v, out, d_out;
  const Wider<T>* log_sum_exp = nullptr;
  Rows<T> dq, dk, dv;
  Write dq_write, dk_write, dv_write;
  ScoreBias<T> bias = {};
  T* d_relative = nullptr;  ///< (H, 2R - 1)
  Write d_relative_write = Write::kSet;
};

namespace kernels {

/// out = dropout(softmax(softcap(scale * q k^T) + bias, over the keys that are seen)) v. A row that
/// sees no key gives 0 and gradient 0. The time is linear in T under a window that stays the same.
/// Tensors in bfloat16 are computed in float, and only results are rounded. But where products of
/// bfloat16 run on tensor cores, or on tiles (bfloat16_kernel.h, with more than a few queries), the
/// weights and their gradients are rounded too, as factors of such products.
template <class T>
void attention(Cpu, const AttentionShape& shape, const AttentionForward<T>& args);
template <class T>
void attention_backward(Cpu, const AttentionShape& shape, const AttentionBackward<T>& args);
template <class T>
void attention(Cuda, const AttentionShape& shape, const AttentionForward<T>& args);
template <class T>
void attention_backward(Cuda, const AttentionShape& shape, const AttentionBackward<T>& args);

}  // namespace kernels
}  // namespace tapestry
