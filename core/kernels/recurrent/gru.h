// The gates of a gated recurrent unit (Cho et al. 2014), in the order and form of PyTorch: r, z, n,
//   r = sigmoid(x_r + h_r), z = sigmoid(x_z + h_z), n = tanh(x_n + r * h_n),
//   h' = (1 - z) * n + z * h,
// where [x_r | x_z | x_n] = W_x x + b_x and [h_r | h_z | h_n] = W_h h + b_h are products of the
// caller.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

struct GruShape {
  int64_t rows = 0;  ///< B
  int64_t size = 0;  ///< D
  /// (B): row b takes this step if time < lengths[b], else it keeps its state; null: all rows take
  /// it.
  const int32_t* lengths = nullptr;
  int64_t time = 0;
};

/// A matrix whose rows lie `stride` elements apart: it may be a column range of a wider one.
template <class T>
struct GruRows {
  T* data = nullptr;
  int64_t stride = 0;
};

template <class T>
struct GruForward {
  GruRows<const T> x_gates;  ///< (B, 3D)
  GruRows<const T> h_gates;  ///< (B, 3D); null: zeros
  const T* bias = nullptr;   ///< (3D), added to h_gates; may be null
  GruRows<const T> h;        ///< (B, D); null: zeros
  GruRows<T> out;            ///< (B, D): h'
  T* saved = nullptr;        ///< (B, 4D): r, z, n and h_n, for backward; may be null
};

/// The gradient that reaches h' is d_out + d_out_more (each may be null). Null outputs are not
/// computed. A row that keeps its state passes its gradient only to dh. dh may be d_out_more.
template <class T>
struct GruBackward {
  const T* saved = nullptr;
  GruRows<const T> h;  ///< null: zeros
  GruRows<const T> d_out, d_out_more;
  GruRows<T> dx_gates;
  Write dx_write = Write::kSet;
  GruRows<T> dh_gates;
  Write dh_gates_write = Write::kSet;
  GruRows<T> dh;  ///< the direct part; the part through h_gates is the caller's product
  Write dh_write = Write::kSet;
};

namespace kernels {

template <class T>
void gru_step(Cpu, const GruShape& shape, const GruForward<T>& args);
template <class T>
void gru_step_backward(Cpu, const GruShape& shape, const GruBackward<T>& args);

template <class T>
void gru_step(Cuda, const GruShape& shape, const GruForward<T>& args);
template <class T>
void gru_step_backward(Cuda, const GruShape& shape, const GruBackward<T>& args);

}  // namespace kernels
}  // namespace tapestry
