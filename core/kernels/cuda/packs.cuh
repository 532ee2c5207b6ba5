// N neighbouring elements of T, read and written in one access and held as Wider<T> in registers.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "core/kernels/cuda/common.cuh"

namespace tapestry {

template <class T, int N>
__device__ void unpack(const Pack<T, N>& pack, Wider<T> (&v)[N]) {
  if constexpr (std::is_same_v<T, BFloat16> && N % 2 == 0) {
    // A number for an instruction: the compiler takes two for the upper half of a word.
    uint32_t words[N / 2];
    std::memcpy(words, &pack, sizeof(pack));
    for (int i = 0; i < N / 2; ++i) {
      v[2 * i] = std::bit_cast<float>(words[i] << 16);
      v[2 * i + 1] = std::bit_cast<float>(words[i] & 0xffff0000u);
    }
  } else {
    for (int i = 0; i < N; ++i) v[i] = widen(pack.v[i]);
  }
}

template <class T, int N>
__device__ void load_pack(const T* x, Wider<T> (&v)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(x);  // in one access
  unpack(pack, v);
}

/// Keeps the compiler from holding numbers that it has computed from the pack instead of the pack.
template <class T, int N>
__device__ void keep_as_read(Pack<T, N>& pack) {
  static_assert(sizeof(pack) == 16);
  uint32_t words[4];
  std::memcpy(words, &pack, sizeof(pack));
  asm volatile("" : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])::"memory");
  std::memcpy(&pack, words, sizeof(pack));
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
