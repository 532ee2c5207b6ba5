// The passes over rows of a dense layer besides its products.
#pragma once

#include <cstdint>

#include "core/kernels/common.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/elementwise/activation.h"

namespace tapestry {

template <class T>
struct LinearRows {
  using W = Wider<T>;
  // n columns of one row of products x W^T: z = sums + bias (if any) where z is not null, then
  // y = act(sums + bias). The three may be the same memory.
  void (*finish)(Activation activation, const T* bias, const W* sums, T* z, T* y, int64_t n);
  // dz = act'(z) * dy, from z or y as the activation needs; dz may be null with kNone. d_bias += dz
  // (if not null).
  void (*backward)(Activation activation, const T* z, const T* y, const T* dy, T* dz, W* d_bias,
                   int64_t n);
  // total (=|+=) sum of `count` rows of n.
  void (*reduce)(const W* parts, int64_t count, int64_t n, T* total, Write write);
  // y = alpha sums + beta y; y is not read where beta is 0.
  void (*deliver)(const W* sums, W alpha, W beta, T* y, int64_t n);
};

/// The functions for this processor's instruction set.
template <class T>
const LinearRows<T>& linear_rows_functions();

}  // namespace tapestry
