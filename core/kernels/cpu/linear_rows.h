// The passes over rows of a dense layer that stand beside its products.
#pragma once

#include <cstdint>

#include "core/kernels/activation.h"
#include "core/kernels/common.h"
#include "core/kernels/cpu/simd_select.h"

namespace tapestry {

template <class T>
struct LinearRows {
  // n columns of one row: z += bias (if any), then y = act(z); z may be y.
  void (*finish)(Activation activation, const T* bias, T* z, T* y, int64_t n);
  // dz = act'(z) * dy, from z or y as the activation needs; dz may be null with kNone. d_bias += dz
  // (if not null).
  void (*backward)(Activation activation, const T* z, const T* y, const T* dy, T* dz, T* d_bias,
                   int64_t n);
  // total (=|+=) sum of `count` rows of n.
  void (*reduce)(const T* parts, int64_t count, int64_t n, T* total, Write write);
};

/// Of the instruction set of this processor.
template <class T>
const LinearRows<T>& linear_rows_functions();

}  // namespace tapestry
