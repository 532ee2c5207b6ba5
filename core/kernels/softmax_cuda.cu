// Each row has a warp, or a block if it is long. A kernel reads its row twice: the second time from
// the caches, so device memory is read once.
#include <limits>

#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/softmax.h"

namespace tapestry {
namespace {

// The largest element m of a row (or of some of it) and the sum of exp(x - m). Of no elements, or
// only -inf, m is the lowest finite number and the sum 0, so that x - m is never inf - inf.
template <class T>
struct MaxAndSum {
  T max = std::numeric_limits<T>::lowest();
  T sum = 0;

  // exp(x - x) shows infinities and NaN as NaN.
  template <int N>
  __device__ void add(const T (&x)[N]) {
    T larger = max;
    for (const T v : x) larger = v > larger ? v : larger;
    sum *= std::exp(max - larger);
    for (const T v : x) sum += std::exp(v - larger);
    max = larger;
  }
};

template <class Row, class T, int N>
__device__ MaxAndSum<Wider<T>> row_max_and_sum(const Pack<T, N>* x, int64_t packs) {
  MaxAndSum<Wider<T>> part;
  for (int64_t i = Row::rank(); i < packs; i += Row::kCount) {
    const Pack<T, N> values = x[i];
    Wider<T> wide[N];
    for (int j = 0; j < N; ++j) wide[j] = widen(values.v[j]);
    part.add(wide);
  }
  MaxAndSum<Wider<T>> row;
  row.max = Row::reduce(part.max, MaxOf(), row.max);
  row.sum = Row::sum(part.sum * std::exp(part.max - row.max));
  return row;
}

// y (rows, cols) = softmax(x), or log softmax(x); y may be x.
template <class Row, bool kLog, class T, int N>
__global__ void softmax_kernel(const T* x, T* y, int64_t rows, int64_t cols) {
  const int64_t row = Row::row(), packs = cols / N;
  if (row >= rows) return;
  const auto* const from = reinterpret_cast<const Pack<T, N>*>(x + row * cols);
  auto* const to = reinterpret_cast<Pack<T, N>*>(y + row * cols);
  const auto [max, sum] = row_max_and_sum<Row>(from, packs);
  // A row of only -inf gives 0, and as log softmax -inf.
  const Wider<T> log_sum = sum == 0 ? Wider<T>(0) : std::log(sum);
  const Wider<T> factor = sum == 0 ? Wider<T>(0) : 1 / sum;
  for (int64_t i = Row::rank(); i < packs; i += Row::kCount) {
    Pack<T, N> values = from[i];
    for (T& v : values.v) {
      const Wider<T> shifted = widen(v) - max;
      v = narrow<T>(kLog ? shifted - log_sum : std::exp(shifted) * factor);
    }
    to[i] = values;
  }
}

// dx (rows, cols) (=|+=) y * (dy - sum(dy * y)), or for the logarithm dy - exp(y) * sum(dy); dx may
// be dy.
template <class Row, bool kLog, class T, int N>
__global__ void softmax_backward_kernel(const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                                        Write write) {
  const int64_t row = Row::row(), packs = cols / N;
  if (row >= rows) return;
  const auto* const values = reinterpret_cast<const Pack<T, N>*>(y + row * cols);
  const auto* const slopes = reinterpret_cast<const Pack<T, N>*>(dy + row * cols);
  auto* const to = reinterpret_cast<Pack<T, N>*>(dx + row * cols);
  Wider<T> sum = 0;
  for (int64_t i = Row::rank(); i < packs; i += Row::kCount) {
    const Pack<T, N> g = slopes[i];
    if constexpr (kLog) {
      for (int j = 0; j < N; ++j) sum += widen(g.v[j]);
    } else {
      const Pack<T, N> p = values[i];
      for (int j = 0; j < N; ++j) sum += widen(g.v[j]) * widen(p.v[j]);
    }
  }
  sum = Row::sum(sum);
  for (int64_t i = Row::rank(); i < packs; i += Row::kCount) {
    const Pack<T, N> p = values[i], g = slopes[i];
    Pack<T, N> result = write == Write::kAdd ? to[i] : Pack<T, N>{};
    for (int j = 0; j < N; ++j) {
      const Wider<T> value = widen(p.v[j]), slope = widen(g.v[j]);
      deliver(&result.v[j], kLog ? slope - std::exp(value) * sum : value * (slope - sum), write);
    }
    to[i] = result;
  }
}

template <bool kLog, class T>
void run_forward(const T* x, T* y, int64_t rows, int64_t cols) {
  const bool packed = can_pack<T>(cols, x, y);
  with_row_threads(rows, cols, [&](auto row, unsigned grid) {
    using Row = decltype(row);
    launch({.kernel = "softmax", .grid = grid},
           packed ? softmax_kernel<Row, kLog, T, kPack<T>> : softmax_kernel<Row, kLog, T, 1>, x, y,
           rows, cols);
  });
}

template <bool kLog, class T>
void run_backward(const T* y, const T* dy, T* dx, int64_t rows, int64_t cols, Write write) {
  const bool packed = can_pack<T>(cols, y, dy, dx);
  with_row_threads(rows, cols, [&](auto row, unsigned grid) {
    using Row = decltype(row);
    launch({.kernel = "softmax_backward", .grid = grid},
           packed ? softmax_backward_kernel<Row, kLog, T, kPack<T>>
                  : softmax_backward_kernel<Row, kLog, T, 1>,
           y, dy, dx, rows, cols, write);
  });
}

}  // namespace

namespace kernels {

template <class T>
void softmax(Cuda, const T* x, T* y, int64_t rows, int64_t cols) {
  run_forward<false>(x, y, rows, cols);
}

template <class T>
void softmax_backward(Cuda, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                      Write write) {
  run_backward<false>(y, dy, dx, rows, cols, write);
}

template <class T>
void log_softmax(Cuda, const T* x, T* y, int64_t rows, int64_t cols) {
  run_forward<true>(x, y, rows, cols);
}

template <class T>
void log_softmax_backward(Cuda, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                          Write write) {
  run_backward<true>(y, dy, dx, rows, cols, write);
}

#define TAPESTRY_SOFTMAX(T)                                                              \
  template void softmax(Cuda, const T*, T*, int64_t, int64_t);                           \
  template void softmax_backward(Cuda, const T*, const T*, T*, int64_t, int64_t, Write); \
  template void log_softmax(Cuda, const T*, T*, int64_t, int64_t);                       \
  template void log_softmax_backward(Cuda, const T*, const T*, T*, int64_t, int64_t, Write);
TAPESTRY_SOFTMAX(float)
TAPESTRY_SOFTMAX(double)
TAPESTRY_SOFTMAX(BFloat16)

}  // namespace kernels
}  // namespace tapestry
