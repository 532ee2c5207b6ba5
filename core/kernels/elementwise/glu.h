// Gated linear units (Shazeer 2020): swiglu with f = silu, geglu with f = gelu.
#pragma once

#include "core/kernels/common.h"
#include "core/kernels/elementwise/activation.h"

namespace tapestry {
namespace kernels {

/// y = f(a) * b for rows x = [a | b]: x (rows, 2 * cols), y (rows, cols).
template <class T>
void glu(Cpu, Activation f, const T* x, T* y, int64_t rows, int64_t cols);
template <class T>
void glu(Cuda, Activation f, const T* x, T* y, int64_t rows, int64_t cols);

/// da (=|+=) f'(a) * b * dy, db (=|+=) f(a) * dy, both in dx (rows, 2 * cols).
template <class T>
void glu_backward(Cpu, Activation f, const T* x, const T* dy, T* dx, int64_t rows, int64_t cols,
                  Write write);
template <class T>
void glu_backward(Cuda, Activation f, const T* x, const T* dy, T* dx, int64_t rows, int64_t cols,
                  Write write);

}  // namespace kernels
}  // namespace tapestry
