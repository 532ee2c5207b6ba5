// Fused scaled dot-product attention (Vaswani et al. 2017): tiled, with online softmax (Milakov and
// Gimelshein 2018), so that no array of size T x S is stored (FlashAttention, Dao et al. 2022).
// Heads are addressed inside (B, T, H*K) rows by stride, so no operand is ever permuted and q, k, v
// may be column ranges of one fused projection.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

/// One operand (q, k, v, out or a gradient): element (b, t, h, i) is at
/// data[b * batch_stride + t * row_stride + h * head_size + i].
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t row_stride = 0;
  int64_t batch_stride = 0;
};

struct AttentionShape {
  int64_t batch = 0;      ///< B
  int64_t queries = 0;    ///< T
  int64_t keys = 0;       ///< S
  int64_t heads = 0;      ///< H query heads
  int64_t kv_heads = 0;   ///< G key/value heads; G divides H, head h reads group h / (H / G)
  int64_t head_size = 0;  ///< K
  double scale = 1;       ///< factor of the scores, usually 1 / sqrt(K)
  /// Query t sees keys j <= t + (S - T): the last query sees all keys.
  bool causal = false;
  /// (B): keys at or after key_lengths[b] are masked; null masks none.
  const int32_t* key_lengths = nullptr;
  /// Dropout of the attention weights: weight (b, h, t, j) has draw ((b * H + h) * T + t) * S + j.
  Dropout dropout;
};

template <class T>
struct AttentionForward {
  Rows<const T> q, k, v;
  Rows<T> out;
  Wider<T>* log_sum_exp = nullptr;  ///< (B, H, T), for backward; may be null
};

/// dq, dk, dv (=|+=) the gradients. One with a null data pointer is not computed.
template <class T>
struct AttentionBackward {
  Rows<const T> q, k, v, out, d_out;
  const Wider<T>* log_sum_exp = nullptr;
  Rows<T> dq, dk, dv;
  Write dq_write, dk_write, dv_write;
};

namespace kernels {

/// out = dropout(softmax(scale * q k^T + mask)) v. A row that sees no key gives 0 and gradient 0.
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
