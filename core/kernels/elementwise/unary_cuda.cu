#include "core/kernels/cuda/common.cuh"
#include "core/kernels/elementwise/activation_functors.h"
#include "core/kernels/elementwise/unary.h"
#include "core/kernels/elementwise/unary_functors.h"

namespace tapestry {
namespace {

// x and y may be the same array: no __restrict__. A thread takes N elements per turn.
template <class T, class F, int N>
__global__ void forward(const T* x, T* y, int64_t packs) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    auto values = reinterpret_cast<const Pack<T, N>*>(x)[i];
#pragma unroll
    for (T& v : values.v) v = narrow<T>(F::f(widen(v)));
    reinterpret_cast<Pack<T, N>*>(y)[i] = values;
  }
}

// v is what F::df is computed from.
template <class T, class F, int N>
__global__ void backward(const T* v, const T* dy, T* dx, int64_t packs, Write write) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    const auto value = reinterpret_cast<const Pack<T, N>*>(v)[i];
    const auto slope = reinterpret_cast<const Pack<T, N>*>(dy)[i];
    auto& out = reinterpret_cast<Pack<T, N>*>(dx)[i];
    Pack<T, N> result = write == Write::kAdd ? out : Pack<T, N>{};
    for (int j = 0; j < N; ++j) {
      deliver(&result.v[j], F::df(widen(value.v[j])) * widen(slope.v[j]), write);
    }
    out = result;
  }
}

}  // namespace

namespace kernels {

template <class T, class F>
void unary(Cuda, F f, const T* x, T* y, int64_t n) {
  with_functor(f, [&](auto functor) {
    using Functor = decltype(functor);
    const bool packed = can_pack<T>(n, x, y);
    const int64_t packs = packed ? n / kPack<T> : n;
    launch({.kernel = "unary", .grid = blocks_for(packs)},
           packed ? forward<T, Functor, kPack<T>> : forward<T, Functor, 1>, x, y, packs);
  });
}

template <class T, class F>
void unary_backward(Cuda, F f, const T* x, const T* y, const T* dy, T* dx, int64_t n, Write write) {
  with_functor(f, [&](auto functor) {
    using Functor = decltype(functor);
    const T* const v = functors::argument_of_df<Functor>(x, y, dy);
    const bool packed = can_pack<T>(n, v, dy, dx);
    const int64_t packs = packed ? n / kPack<T> : n;
    launch({.kernel = "unary_backward", .grid = blocks_for(packs)},
           packed ? backward<T, Functor, kPack<T>> : backward<T, Functor, 1>, v, dy, dx, packs,
           write);
  });
}

#define TAPESTRY_UNARY(T, F)                           \
  template void unary(Cuda, F, const T*, T*, int64_t); \
  template void unary_backward(Cuda, F, const T*, const T*, const T*, T*, int64_t, Write);
TAPESTRY_UNARY(float, Unary)
TAPESTRY_UNARY(double, Unary)
TAPESTRY_UNARY(BFloat16, Unary)
TAPESTRY_UNARY(float, Activation)
TAPESTRY_UNARY(double, Activation)
TAPESTRY_UNARY(BFloat16, Activation)

}  // namespace kernels
}  // namespace tapestry
