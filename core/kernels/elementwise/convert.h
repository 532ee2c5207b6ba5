// Filling and changing the type of elements.
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

/// A C++ cast; to and from bfloat16 through float, rounded to nearest even.
template <class To, class From>
TAPESTRY_HOST_DEVICE To element_cast(From x) {
  if constexpr (std::is_same_v<From, BFloat16> || std::is_same_v<To, BFloat16>) {
    return static_cast<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

namespace kernels {

/// y = value, n elements.
template <class T>
void fill(Cpu, T value, T* y, int64_t n);
template <class T>
void fill(Cuda, T value, T* y, int64_t n);

/// y[i] = element_cast(x[i]), n elements. For float, double, int32_t and BFloat16.
template <class From, class To>
void convert(Cpu, const From* x, To* y, int64_t n);
template <class From, class To>
void convert(Cuda, const From* x, To* y, int64_t n);

}  // namespace kernels
}  // namespace tapestry
