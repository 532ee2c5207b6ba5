// A step has few elements and waits for the product before it: one thread per element, so that as
// many loads as possible run at once.
#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/unary_functors.h"
#include "core/kernels/recurrent/gru.h"

namespace tapestry {
namespace {

using functors::Sigmoid;
using functors::Tanh;

__device__ inline bool takes_step(const GruShape& shape, int64_t row) {
  return shape.lengths == nullptr || shape.time < shape.lengths[row];
}

// Element i of a row; 0 for a null matrix.
template <class T>
__device__ Wider<T> element(const GruRows<const T>& rows, int64_t row, int64_t i) {
  return rows.data != nullptr ? widen(rows.data[row * rows.stride + i]) : Wider<T>(0);
}

// (rows, size)
template <class T>
__global__ void forward(GruShape shape, GruForward<T> args) {
  using W = Wider<T>;
  const int64_t size = shape.size, place = global_thread();
  if (place >= shape.rows * size) return;
  const int64_t row = place / size, i = place % size;
  const W before = element(args.h, row, i);
  T& out = args.out.data[row * args.out.stride + i];
  if (!takes_step(shape, row)) {
    out = narrow<T>(before);
    return;
  }
  const auto x = [&](int64_t gate) { return element(args.x_gates, row, gate * size + i); };
  const auto h = [&](int64_t gate) {
    const W bias = args.bias != nullptr ? widen(args.bias[gate * size + i]) : W(0);
    return element(args.h_gates, row, gate * size + i) + bias;
  };
  const W r = Sigmoid::f(x(0) + h(0)), z = Sigmoid::f(x(1) + h(1)), h_n = h(2);
  const W n = Tanh::f(x(2) + r * h_n);
  out = narrow<T>(z * (before - n) + n);
  if (args.saved == nullptr) return;
  T* const saved = args.saved + row * 4 * size + i;
  saved[0] = narrow<T>(r);
  saved[size] = narrow<T>(z);
  saved[2 * size] = narrow<T>(n);
  saved[3 * size] = narrow<T>(h_n);
}

// gates (=|+=) dr, dz, dn of element i
template <class T>
__device__ void deliver_gates(const GruRows<T>& gates, int64_t row, int64_t i, int64_t size,
                              Wider<T> dr, Wider<T> dz, Wider<T> dn, Write write) {
  if (gates.data == nullptr) return;
  T* const out = gates.data + row * gates.stride + i;
  deliver(out, dr, write);
  deliver(out + size, dz, write);
  deliver(out + 2 * size, dn, write);
}

// (rows, size)
template <class T>
__global__ void backward(GruShape shape, GruBackward<T> args) {
  using W = Wider<T>;
  const int64_t size = shape.size, place = global_thread();
  if (place >= shape.rows * size) return;
  const int64_t row = place / size, i = place % size;
  const W g = element(args.d_out, row, i) + element(args.d_out_more, row, i);
  W through_state = g, dr = 0, dz = 0, dn = 0, dh_n = 0;
  if (takes_step(shape, row)) {
    const T* const saved = args.saved + row * 4 * size + i;
    const W r = widen(saved[0]), z = widen(saved[size]);
    const W n = widen(saved[2 * size]), h_n = widen(saved[3 * size]);
    through_state = g * z;
    dz = g * (element(args.h, row, i) - n) * Sigmoid::df(z);
    dn = (g - g * z) * Tanh::df(n);
    dr = dn * h_n * Sigmoid::df(r);
    dh_n = dn * r;
  }
  deliver_gates(args.dx_gates, row, i, size, dr, dz, dn, args.dx_write);
  deliver_gates(args.dh_gates, row, i, size, dr, dz, dh_n, args.dh_gates_write);
  if (args.dh.data != nullptr) {
    deliver(args.dh.data + row * args.dh.stride + i, through_state, args.dh_write);
  }
}

}  // namespace

namespace kernels {

template <class T>
void gru_step(Cuda, const GruShape& shape, const GruForward<T>& args) {
  launch({.kernel = "gru_step", .grid = blocks_for(shape.rows * shape.size, kBlock, INT32_MAX)},
         forward<T>, shape, args);
}

template <class T>
void gru_step_backward(Cuda, const GruShape& shape, const GruBackward<T>& args) {
  launch({.kernel = "gru_step_backward",
          .grid = blocks_for(shape.rows * shape.size, kBlock, INT32_MAX)},
         backward<T>, shape, args);
}

#define TAPESTRY_GRU(T)                                                \
  template void gru_step(Cuda, const GruShape&, const GruForward<T>&); \
  template void gru_step_backward(Cuda, const GruShape&, const GruBackward<T>&);
TAPESTRY_GRU(float)
TAPESTRY_GRU(double)
TAPESTRY_GRU(BFloat16)

}  // namespace kernels
}  // namespace tapestry
