// N neighbouring elements of T, read and written in one access and held as Wider<T> in registers.
#pragma once

#include "core/kernels/cuda/common.cuh"

namespace tapestry {

template <class T, int N>
__device__ void load_pack(const T* x, Wider<T> (&v)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(x);
  for (int i = 0; i < N; ++i) v[i] = widen(pack.v[i]);
}

/// y (=|+=) v
template <class T, int N>
__device__ void deliver_pack(T* y, const Wider<T> (&v)[N], Write write) {
  auto& out = *reinterpret_cast<Pack<T, N>*>(y);
  Pack<T, N> pack = write == Write::kAdd ? out : Pack<T, N>{};
  for (int i = 0; i < N; ++i) deliver(&pack.v[i], v[i], write);
  out = pack;
}

/// The dropout factors of elements index to index + N - 1; `index` is a multiple of N.
template <class T, int N>
__device__ void factor_pack(const DropoutFactors<T>& dropout, uint64_t index, Wider<T> (&v)[N]) {
  if constexpr (N % 4 == 0) {
    for (int i = 0; i < N; i += 4) {
      Wider<T> four[4];
      dropout.four((index + static_cast<uint64_t>(i)) / 4, four);
      for (int j = 0; j < 4; ++j) v[i + j] = four[j];
    }
  } else {
    for (int i = 0; i < N; ++i) v[i] = dropout.at(index + static_cast<uint64_t>(i));
  }
}

}  // namespace tapestry
