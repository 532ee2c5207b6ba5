// Additive attention (Bahdanau et al. 2015, A.1.2) of queries and keys that are already projected
// to a common size A. No array of size T x S x A is stored.
#pragma once

#include "core/base/host_device.h"
#include "core/kernels/common.h"

namespace tapestry {

struct AdditiveAttentionShape {
  int64_t batch = 0;       ///< B
  int64_t queries = 0;     ///< T
  int64_t keys = 0;        ///< S
  int64_t size = 0;        ///< A
  int64_t value_size = 0;  ///< E
  /// (B): keys at or after key_lengths[b] are masked; null masks none.
  const int32_t* key_lengths = nullptr;
  /// (B), forward only: the batch element of k, values and key_lengths that b reads; null: b.
  const int32_t* memories = nullptr;

  TAPESTRY_HOST_DEVICE int64_t memory(int64_t b) const {
    return memories == nullptr ? b : memories[b];
  }
};

/// q (B, T, A), k (B, S, A), values (B, S, E), v (A), out (B, T, E), weights (B, T, S).
template <class T>
struct AdditiveAttentionForward {
  const T *q, *k, *values, *v;
  T *out, *weights;
};

/// Each gradient is written (=|+=) in its own mode. A null gradient is not computed.
template <class T>
struct AdditiveAttentionBackward {
  const T *q, *k, *values, *v, *weights, *d_out;
  T* dq;
  Write dq_write;
  T* dk;
  Write dk_write;
  T* d_values;
  Write d_values_write;
  T* dv;
  Write dv_write;
};

namespace kernels {

/// weights = softmax_j(v . tanh(q_t + k_j)) over the keys before key_lengths[b], out = weights *
/// values. A query without keys gives 0 and gradient 0. tanh is computed from one exponential; its
/// absolute error is that of rounding.
template <class T>
void additive_attention(Cpu, const AdditiveAttentionShape& shape,
                        const AdditiveAttentionForward<T>& args);
/// With s the scores and w the weights: dw_j = d_out . values_j, ds = w (dw - sum(w dw)),
/// dv = sum ds_j tanh(q + k_j), dq = sum ds_j v (1 - tanh^2), dk_j the same without the sum over j;
/// tanh is computed again.
template <class T>
void additive_attention_backward(Cpu, const AdditiveAttentionShape& shape,
                                 const AdditiveAttentionBackward<T>& args);

template <class T>
void additive_attention(Cuda, const AdditiveAttentionShape& shape,
                        const AdditiveAttentionForward<T>& args);
template <class T>
void additive_attention_backward(Cuda, const AdditiveAttentionShape& shape,
                                 const AdditiveAttentionBackward<T>& args);

}  // namespace kernels
}  // namespace tapestry
