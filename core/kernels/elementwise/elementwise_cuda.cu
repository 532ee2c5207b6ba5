#include "core/kernels/cuda/common.cuh"
#include "core/kernels/cuda/reduce.cuh"
#include "core/kernels/elementwise/broadcast_loops.h"
#include "core/kernels/reduce.h"

namespace tapestry {
namespace {

// Functions of an element of a, of b and of dy, in Wider<T>. Operands that are not needed are not
// read.
struct Add {
  static constexpr bool kA = true, kB = true, kDy = false;
  template <class T>
  __device__ static T f(T a, T b, T) {
    return a + b;
  }
};
struct Sub {
  static constexpr bool kA = true, kB = true, kDy = false;
  template <class T>
  __device__ static T f(T a, T b, T) {
    return a - b;
  }
};
struct Mul {
  static constexpr bool kA = true, kB = true, kDy = false;
  template <class T>
  __device__ static T f(T a, T b, T) {
    return a * b;
  }
};
struct Div {
  static constexpr bool kA = true, kB = true, kDy = false;
  template <class T>
  __device__ static T f(T a, T b, T) {
    return a / b;
  }
};
// The derivatives times dy; those of Add and Sub are 1 and -1.
struct MulByA {
  static constexpr bool kA = false, kB = true, kDy = true;
  template <class T>
  __device__ static T f(T, T b, T dy) {
    return dy * b;
  }
};
struct MulByB {
  static constexpr bool kA = true, kB = false, kDy = true;
  template <class T>
  __device__ static T f(T a, T, T dy) {
    return dy * a;
  }
};
struct DivByA {
  static constexpr bool kA = false, kB = true, kDy = true;
  template <class T>
  __device__ static T f(T, T b, T dy) {
    return dy / b;
  }
};
struct DivByB {
  static constexpr bool kA = true, kB = true, kDy = true;
  template <class T>
  __device__ static T f(T a, T b, T dy) {
    return -(dy * a) / (b * b);
  }
};

template <class T, int N>
__device__ Pack<T, N> operand_pack(const T* row, int64_t col, bool is_vector) {
  if (is_vector) return *reinterpret_cast<const Pack<T, N>*>(row + col);
  Pack<T, N> values;
  for (T& v : values.v) v = *row;
  return values;
}

// y (rows, cols) (=|+=) f(a, b, dy), dy dense; a thread takes N neighbours of a row per turn. The
// loops stay where the parameters are: each thread would copy them to index them.
template <class T, class Out, class F, int N>
__global__ void broadcast_kernel(const __grid_constant__ BroadcastLoops loops, const T* a,
                                 const T* b, const T* dy, Out* y, Write write) {
  const int64_t row_packs = loops.cols / N, packs = loops.rows * row_packs;
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const int64_t row = loops.rows == 1 ? 0 : i / row_packs;
    int64_t a_row, b_row;
    loops.offsets(row, a_row, b_row);
    const int64_t col = (i - row * row_packs) * N;
    Pack<T, N> p{}, q{}, g{};
    if (F::kA) p = operand_pack<T, N>(a + a_row, col, loops.a_is_vector);
    if (F::kB) q = operand_pack<T, N>(b + b_row, col, loops.b_is_vector);
    if (F::kDy) g = reinterpret_cast<const Pack<T, N>*>(dy)[i];
    auto& out = reinterpret_cast<Pack<Out, N>*>(y)[i];
    Pack<Out, N> result = write == Write::kAdd ? out : Pack<Out, N>{};
    for (int j = 0; j < N; ++j) {
      deliver(&result.v[j], F::f(widen(p.v[j]), widen(q.v[j]), widen(g.v[j])), write);
    }
    out = result;
  }
}

// Whether every row of an operand is aligned for a Pack.
template <class T>
bool rows_can_pack(const BroadcastLoops& loops, const int64_t (&strides)[Shape::kMaxRank],
                   bool is_vector, const T* data) {
  bool fits = true;
  for (int axis = 0; axis < loops.rank - 1; ++axis) fits = fits && can_pack<T>(strides[axis]);
  return !is_vector || (fits && can_pack<T>(0, data));
}

template <class F, class T, class Out>
void run_broadcast(const BroadcastPlan& plan, const T* a, const T* b, const T* dy, Out* y,
                   Write write) {
  const BroadcastLoops loops(plan);
  const bool packed = can_pack<T>(loops.cols, dy, y) &&
                      rows_can_pack(loops, loops.a_stride, loops.a_is_vector, a) &&
                      rows_can_pack(loops, loops.b_stride, loops.b_is_vector, b);
  const int64_t packs = loops.rows * loops.cols / (packed ? kPack<T> : 1);
  launch({.kernel = "binary", .grid = blocks_for(packs)},
         packed ? broadcast_kernel<T, Out, F, kPack<T>> : broadcast_kernel<T, Out, F, 1>, loops, a,
         b, dy, y, write);
}

// y (=|+=) dy * d(a op b)/d(operand) in the shape of the result, for products and quotients.
template <class T, class Out>
void run_backward(Binary op, int wrt, const BroadcastPlan& plan, const T* a, const T* b,
                  const T* dy, Out* y, Write write) {
  if (op == Binary::kMul) {
    return wrt == 0 ? run_broadcast<MulByA>(plan, a, b, dy, y, write)
                    : run_broadcast<MulByB>(plan, a, b, dy, y, write);
  }
  return wrt == 0 ? run_broadcast<DivByA>(plan, a, b, dy, y, write)
                  : run_broadcast<DivByB>(plan, a, b, dy, y, write);
}

// y (=|+=) scale * the sum of the full-sized x over the axes on which an operand was broadcast.
template <class In, class T>
void sum_to_operand(const OperandSums& rounds, const In* x, T* y, double scale, Write write) {
  if (rounds.count == 1) return sum_axis_cuda(rounds.sums[0], x, y, scale, write);
  DeviceScratch<Wider<T>> partial(rounds.sums[0].outer * rounds.sums[0].inner);
  sum_axis_cuda(rounds.sums[0], x, partial.data(), 1, Write::kSet);
  sum_axis_cuda(rounds.sums[1], partial.data(), y, scale, write);
}

// A thread takes N elements per turn; y may be x.
template <class T, int N>
__global__ void affine_kernel(Wider<T> alpha, const T* x, Wider<T> beta, T* y, int64_t packs,
                              Write write) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const auto values = reinterpret_cast<const Pack<T, N>*>(x)[i];
    auto& out = reinterpret_cast<Pack<T, N>*>(y)[i];
    Pack<T, N> result = write == Write::kAdd ? out : Pack<T, N>{};
    for (int j = 0; j < N; ++j) deliver(&result.v[j], alpha * widen(values.v[j]) + beta, write);
    out = result;
  }
}

// A thread takes N elements per turn.
template <class T, int N>
__global__ void scale_kernel(const T* factor, T* x, int64_t packs) {
  const Wider<T> by = widen(*factor);
  if (by == 1) return;
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    auto& values = reinterpret_cast<Pack<T, N>*>(x)[i];
    Pack<T, N> result = values;
    for (int j = 0; j < N; ++j) result.v[j] = narrow<T>(by * widen(result.v[j]));
    values = result;
  }
}

// A thread takes N elements per turn. One division finds the mask element of the first; counting
// gives the others.
template <class T, int N>
__global__ void masked_fill_kernel(const T* x, const int32_t* mask, int64_t mask_n, int64_t inner,
                                   T value, T* y, int64_t packs, Write write) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const auto values = reinterpret_cast<const Pack<T, N>*>(x)[i];
    auto& out = reinterpret_cast<Pack<T, N>*>(y)[i];
    Pack<T, N> result = write == Write::kAdd ? out : Pack<T, N>{};
    int64_t m = i * N / inner % mask_n, within = i * N % inner;
    for (int j = 0; j < N; ++j) {
      if (mask[m] == 0) {
        deliver(&result.v[j], widen(values.v[j]), write);
      } else if (write == Write::kSet) {
        result.v[j] = value;
      }
      if (++within == inner) within = 0, m = m + 1 == mask_n ? 0 : m + 1;
    }
    out = result;
  }
}

// y (outer, n, inner) (=|+=) scale * x (outer, inner): a thread takes N elements of y per turn; x
// comes from the caches.
template <class T, int N>
__global__ void broadcast_axis_kernel(const T* x, T* y, int64_t n, int64_t inner, Wider<T> scale,
                                      int64_t packs, Write write) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    auto& out = reinterpret_cast<Pack<T, N>*>(y)[i];
    Pack<T, N> result = write == Write::kAdd ? out : Pack<T, N>{};
    int64_t row = i * N / inner, col = i * N % inner;
    const T* from = x + row / n * inner;
    row %= n;
    for (int j = 0; j < N; ++j) {
      deliver(&result.v[j], scale * widen(from[col]), write);
      if (++col < inner) continue;
      col = 0;
      if (++row == n) row = 0, from += inner;
    }
    out = result;
  }
}

// Rows of `row_packs` packs of N elements; the strides are in packs too.
template <class T, int N>
__global__ void copy_block_kernel(const Pack<T, N>* x, int64_t x_stride, Pack<T, N>* y,
                                  int64_t y_stride, int64_t row_packs, int64_t packs, Write write) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const int64_t row = i / row_packs, col = i % row_packs;
    const auto values = x[row * x_stride + col];
    auto& out = y[row * y_stride + col];
    Pack<T, N> result = write == Write::kAdd ? out : values;
    if (write == Write::kAdd) {
      for (int j = 0; j < N; ++j) deliver(&result.v[j], widen(values.v[j]), write);
    }
    out = result;
  }
}

template <class T, int N>
__global__ void scatter_kernel(const T* x, int64_t x_stride, const int32_t* rows, int64_t count,
                               T* y, int64_t cols) {
  const int64_t row_packs = cols / N, packs = count * row_packs;
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const int64_t row = i / row_packs, col = i % row_packs * N;
    if (rows[row] < 0) continue;
    *reinterpret_cast<Pack<T, N>*>(y + rows[row] * cols + col) =
        *reinterpret_cast<const Pack<T, N>*>(x + row * x_stride + col);
  }
}

template <class T, int N>
void copy_packs(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows, int64_t cols,
                Write write) {
  const int64_t packs = rows * (cols / N);
  launch({.kernel = "copy_block", .grid = blocks_for(packs)}, copy_block_kernel<T, N>,
         reinterpret_cast<const Pack<T, N>*>(x), x_stride / N, reinterpret_cast<Pack<T, N>*>(y),
         y_stride / N, cols / N, packs, write);
}

}  // namespace

namespace kernels {

template <class T>
void binary(Cuda, Binary op, const BroadcastPlan& plan, const T* a, const T* b, T* y) {
  constexpr const T* kNoDy = nullptr;
  switch (op) {
    case Binary::kAdd:
      return run_broadcast<Add>(plan, a, b, kNoDy, y, Write::kSet);
    case Binary::kSub:
      return run_broadcast<Sub>(plan, a, b, kNoDy, y, Write::kSet);
    case Binary::kMul:
      return run_broadcast<Mul>(plan, a, b, kNoDy, y, Write::kSet);
    case Binary::kDiv:
      return run_broadcast<Div>(plan, a, b, kNoDy, y, Write::kSet);
  }
}

template <class T>
void binary_backward(Cuda, Binary op, int wrt, const BroadcastPlan& plan, const T* a, const T* b,
                     const T* dy, T* d_operand, Write write) {
  const OperandSums rounds(plan, wrt == 0 ? plan.a_stride : plan.b_stride);
  const bool reduced = rounds.count > 0;
  const int64_t n = numel(plan);
  if (op == Binary::kAdd || op == Binary::kSub) {
    const double sign = op == Binary::kSub && wrt == 1 ? -1 : 1;
    if (!reduced) return affine(Cuda{}, sign, dy, 0, d_operand, n, write);
    return sum_to_operand(rounds, dy, d_operand, sign, write);
  }
  if (!reduced) return run_backward(op, wrt, plan, a, b, dy, d_operand, write);
  DeviceScratch<Wider<T>> full(n);
  run_backward(op, wrt, plan, a, b, dy, full.data(), Write::kSet);
  sum_to_operand(rounds, full.data(), d_operand, 1, write);
}

template <class T>
void affine(Cuda, double alpha, const T* x, double beta, T* y, int64_t n, Write write) {
  const bool packed = can_pack<T>(n, x, y);
  const int64_t packs = packed ? n / kPack<T> : n;
  launch({.kernel = "affine", .grid = blocks_for(packs)},
         packed ? affine_kernel<T, kPack<T>> : affine_kernel<T, 1>, static_cast<Wider<T>>(alpha), x,
         static_cast<Wider<T>>(beta), y, packs, write);
}

template <class T>
void scale(Cuda, const T* factor, T* x, int64_t n) {
  const bool packed = can_pack<T>(n, x);
  const int64_t packs = packed ? n / kPack<T> : n;
  launch({.kernel = "scale", .grid = blocks_for(packs)},
         packed ? scale_kernel<T, kPack<T>> : scale_kernel<T, 1>, factor, x, packs);
}

template <class T>
void masked_fill(Cuda, const T* x, const int32_t* mask, int64_t mask_n, int64_t inner, double value,
                 T* y, int64_t n, Write write) {
  const bool packed = can_pack<T>(n, x, y);
  const int64_t packs = packed ? n / kPack<T> : n;
  launch({.kernel = "masked_fill", .grid = blocks_for(packs)},
         packed ? masked_fill_kernel<T, kPack<T>> : masked_fill_kernel<T, 1>, x, mask, mask_n,
         inner, static_cast<T>(static_cast<Wider<T>>(value)), y, packs, write);
}

template <class T>
void broadcast_axis(Cuda, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, double scale,
                    Write write) {
  const int64_t total = outer * n * inner;
  const bool packed = can_pack<T>(total, y);
  const int64_t packs = packed ? total / kPack<T> : total;
  launch({.kernel = "broadcast_axis", .grid = blocks_for(packs)},
         packed ? broadcast_axis_kernel<T, kPack<T>> : broadcast_axis_kernel<T, 1>, x, y, n, inner,
         static_cast<Wider<T>>(scale), packs, write);
}

template <class T>
void copy_block(Cuda, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows,
                int64_t cols, Write write) {
  const bool packed = can_pack<T>(cols, x, y) && can_pack<T>(x_stride) && can_pack<T>(y_stride);
  const auto copy = packed ? copy_packs<T, kPack<T>> : copy_packs<T, 1>;
  copy(x, x_stride, y, y_stride, rows, cols, write);
}

template <class T>
void scatter_rows(Cuda, const T* x, int64_t x_stride, const int32_t* rows, int64_t count, T* y,
                  int64_t cols) {
  if (count == 0) return;
  const bool packed = can_pack<T>(cols, x, y) && can_pack<T>(x_stride);
  launch({.kernel = "scatter_rows", .grid = blocks_for(count * (packed ? cols / kPack<T> : cols))},
         packed ? scatter_kernel<T, kPack<T>> : scatter_kernel<T, 1>, x, x_stride, rows, count, y,
         cols);
}

#define TAPESTRY_ELEMENTWISE(T)                                                                    \
  template void binary(Cuda, Binary, const BroadcastPlan&, const T*, const T*, T*);                \
  template void binary_backward(Cuda, Binary, int, const BroadcastPlan&, const T*, const T*,       \
                                const T*, T*, Write);                                              \
  template void affine(Cuda, double, const T*, double, T*, int64_t, Write);                        \
  template void scale(Cuda, const T*, T*, int64_t);                                                \
  template void masked_fill(Cuda, const T*, const int32_t*, int64_t, int64_t, double, T*, int64_t, \
                            Write);                                                                \
  template void broadcast_axis(Cuda, const T*, T*, int64_t, int64_t, int64_t, double, Write);      \
  template void copy_block(Cuda, const T*, int64_t, T*, int64_t, int64_t, int64_t, Write);         \
  template void scatter_rows(Cuda, const T*, int64_t, const int32_t*, int64_t, T*, int64_t);
TAPESTRY_ELEMENTWISE(float)
TAPESTRY_ELEMENTWISE(double)
TAPESTRY_ELEMENTWISE(BFloat16)

}  // namespace kernels
}  // namespace tapestry
