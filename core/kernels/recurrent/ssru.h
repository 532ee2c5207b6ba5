// The Simpler Simple Recurrent Unit (Kim et al. 2019, "From Research to Production and Back:
// Ludicrously Fast Neural Machine Translation", 3.1), all of it but its products:
//   f_t = sigmoid(g_t + b), c_t = f_t * c_{t-1} + (1 - f_t) * v_t, h_t = relu(c_t),
// g = W_f x and v = W x side by side, c_0 = 0. Each of the D numbers goes its own way.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

/// Sequences lie one after the other: sequence s has rows [s * steps, (s + 1) * steps), or
/// [starts[s], starts[s + 1]).
struct SsruShape {
  int64_t sequences = 0;
  int64_t steps = 0;                ///< T; with starts those of the longest one
  int64_t size = 0;                 ///< D
  const int32_t* starts = nullptr;  ///< (sequences + 1); null: each has T rows
};

/// Where sequence s begins if it began before: row rows[s * width + lengths[s] - 2] of `states`, or
/// zeros if lengths[s] is 1 (the token that is fed counts, as in AttentionOptions::key_rows).
template <class T>
struct SsruBefore {
  const T* states = nullptr;  ///< (any, D); null: all begin with zeros
  const int32_t* rows = nullptr;
  int64_t width = 0;
  const int32_t* lengths = nullptr;
};

template <class T>
struct SsruForward {
  const T* x = nullptr;     ///< (N, 2D): g, then v, of each row
  const T* bias = nullptr;  ///< (D): b; null: zeros
  SsruBefore<T> before = {};
  T* states = nullptr;  ///< (N, D): c; null: not kept
  T* out = nullptr;     ///< (N, D): h
};

/// Only of sequences that begin with zeros.
template <class T>
struct SsruBackward {
  const T* x = nullptr;
  const T* bias = nullptr;
  const T* states = nullptr;  ///< forward's
  const T* d_out = nullptr;   ///< (N, D)
  T* dx = nullptr;            ///< (N, 2D); may be null
  Write dx_write = Write::kSet;
  T* d_bias = nullptr;  ///< (sequences, D): each one's share of the bias's gradient; may be null
};

namespace kernels {

template <class T>
void ssru(Cpu, const SsruShape& shape, const SsruForward<T>& args);
template <class T>
void ssru_backward(Cpu, const SsruShape& shape, const SsruBackward<T>& args);

template <class T>
void ssru(Cuda, const SsruShape& shape, const SsruForward<T>& args);
template <class T>
void ssru_backward(Cuda, const SsruShape& shape, const SsruBackward<T>& args);

}  // namespace kernels
}  // namespace tapestry
