#include "core/kernels/cuda/common.cuh"
#include "core/kernels/unary.h"
#include "core/kernels/unary_functors.h"

namespace tapestry {
namespace {

using functors::Needs;

// Calls g(functor).
template <class G>
void with_functor(Unary f, G g) {
  switch (f) {
    case Unary::kRelu:
      return g(functors::Relu());
    case Unary::kGelu:
      return g(functors::Gelu());
    case Unary::kGeluTanh:
      return g(functors::GeluTanh());
    case Unary::kSilu:
      return g(functors::Silu());
    case Unary::kTanh:
      return g(functors::Tanh());
    case Unary::kSigmoid:
      return g(functors::Sigmoid());
    case Unary::kExp:
      return g(functors::Exp());
    case Unary::kLog:
      return g(functors::Log());
    case Unary::kSqrt:
      return g(functors::Sqrt());
  }
}

// x and y may be the same array: no __restrict__. N elements a thread and turn.
template <class T, class F, int N>
__global__ void forward(const T* x, T* y, int64_t packs) {
  for (int64_t i = global_thread(); i < packs; i += global_threads()) {
    auto values = reinterpret_cast<const Pack<T, N>*>(x)[i];
#pragma unroll
    for (T& v : values.v) v = narrow<T>(F::f(widen(v)));
    reinterpret_cast<Pack<T, N>*>(y)[i] = values;
  }
}

// v is x or y, whichever the derivative is computed from.
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

template <class T>
void unary(Cuda, Unary f, const T* x, T* y, int64_t n) {
  with_functor(f, [&](auto functor) {
    using F = decltype(functor);
    const bool packed = can_pack<T>(n, x, y);
    const int64_t packs = packed ? n / kPack<T> : n;
    launch({.kernel = "unary", .grid = blocks_for(packs)},
           packed ? forward<T, F, kPack<T>> : forward<T, F, 1>, x, y, packs);
  });
}

template <class T>
void unary_backward(Cuda, Unary f, const T* x, const T* y, const T* dy, T* dx, int64_t n,
                    Write write) {
  with_functor(f, [&](auto functor) {
    using F = decltype(functor);
    const bool from_x = F::kNeeds == Needs::kInput || (F::kNeeds == Needs::kEither && x != nullptr);
    const T* const v = from_x ? x : y;
    const bool packed = can_pack<T>(n, v, dy, dx);
    const int64_t packs = packed ? n / kPack<T> : n;
    launch({.kernel = "unary_backward", .grid = blocks_for(packs)},
           packed ? backward<T, F, kPack<T>> : backward<T, F, 1>, v, dy, dx, packs, write);
  });
}

#define TAPESTRY_UNARY(T)                                  \
  template void unary(Cuda, Unary, const T*, T*, int64_t); \
  template void unary_backward(Cuda, Unary, const T*, const T*, const T*, T*, int64_t, Write);
TAPESTRY_UNARY(float)
TAPESTRY_UNARY(double)
TAPESTRY_UNARY(BFloat16)

}  // namespace kernels
}  // namespace tapestry
