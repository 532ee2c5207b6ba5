#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/activation_functors.h"
#include "core/kernels/elementwise/glu.h"

namespace tapestry {
namespace {

// The packs of x = [a | b] (rows, 2 * row_packs) that belong to pack i of y (rows, row_packs).
struct GluPlace {
  int64_t a, b;
  __device__ GluPlace(int64_t i, int64_t row_packs)
      : a(i / row_packs * 2 * row_packs + i % row_packs), b(a + row_packs) {}
};

// A thread takes N neighbours of a row per turn.
template <class T, class F, int N>
__global__ void glu_kernel(const Pack<T, N>* x, Pack<T, N>* y, int64_t row_packs, int64_t packs) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const GluPlace place(i, row_packs);
    const Pack<T, N> a = x[place.a], b = x[place.b];
    Pack<T, N> result;
    for (int j = 0; j < N; ++j) result.v[j] = narrow<T>(F::f(widen(a.v[j])) * widen(b.v[j]));
    y[i] = result;
  }
}

template <class T, class F, int N>
__global__ void glu_backward_kernel(const Pack<T, N>* x, const Pack<T, N>* dy, Pack<T, N>* dx,
                                    int64_t row_packs, int64_t packs, Write write) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const GluPlace place(i, row_packs);
    const Pack<T, N> a = x[place.a], b = x[place.b], slope = dy[i];
    Pack<T, N> da = write == Write::kAdd ? dx[place.a] : Pack<T, N>{};
    Pack<T, N> db = write == Write::kAdd ? dx[place.b] : Pack<T, N>{};
    for (int j = 0; j < N; ++j) {
      const Wider<T> gate = widen(a.v[j]), g = widen(slope.v[j]), opened = F::f(gate);
      const Wider<T> v = F::kNeeds == functors::Needs::kOutput ? opened : gate;
      deliver(&da.v[j], F::df(v) * widen(b.v[j]) * g, write);
      deliver(&db.v[j], opened * g, write);
    }
    dx[place.a] = da;
    dx[place.b] = db;
  }
}

template <class T, int N>
void run_forward(Activation f, const T* x, T* y, int64_t rows, int64_t cols) {
  const int64_t row_packs = cols / N, packs = rows * row_packs;
  with_functor(f, [&](auto gate) {
    launch({.kernel = "glu", .grid = blocks_for(packs)}, glu_kernel<T, decltype(gate), N>,
           reinterpret_cast<const Pack<T, N>*>(x), reinterpret_cast<Pack<T, N>*>(y), row_packs,
           packs);
  });
}

template <class T, int N>
void run_backward(Activation f, const T* x, const T* dy, T* dx, int64_t rows, int64_t cols,
                  Write write) {
  const int64_t row_packs = cols / N, packs = rows * row_packs;
  with_functor(f, [&](auto gate) {
    launch({.kernel = "glu_backward", .grid = blocks_for(packs)},
           glu_backward_kernel<T, decltype(gate), N>, reinterpret_cast<const Pack<T, N>*>(x),
           reinterpret_cast<const Pack<T, N>*>(dy), reinterpret_cast<Pack<T, N>*>(dx), row_packs,
           packs, write);
  });
}

}  // namespace

namespace kernels {

template <class T>
void glu(Cuda, Activation f, const T* x, T* y, int64_t rows, int64_t cols) {
  const auto run = can_pack<T>(cols, x, y) ? run_forward<T, kPack<T>> : run_forward<T, 1>;
  run(f, x, y, rows, cols);
}

template <class T>
void glu_backward(Cuda, Activation f, const T* x, const T* dy, T* dx, int64_t rows, int64_t cols,
                  Write write) {
  const auto run = can_pack<T>(cols, x, dy, dx) ? run_backward<T, kPack<T>> : run_backward<T, 1>;
  run(f, x, dy, dx, rows, cols, write);
}

#define TAPESTRY_GLU(T)                                                \
  template void glu(Cuda, Activation, const T*, T*, int64_t, int64_t); \
  template void glu_backward(Cuda, Activation, const T*, const T*, T*, int64_t, int64_t, Write);
TAPESTRY_GLU(float)
TAPESTRY_GLU(double)
TAPESTRY_GLU(BFloat16)

}  // namespace kernels
}  // namespace tapestry
