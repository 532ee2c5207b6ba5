#pragma once

#include "core/kernels/common.h"

namespace tapestry::kernels {

/// y[r] = softmax(x[r]) for each of `rows` rows of `cols` columns; y may be x. A row whose elements
/// are all -inf gives zeros.
template <class T>
void softmax(Cpu, const T* x, T* y, int64_t rows, int64_t cols);
template <class T>
void softmax(Cuda, const T* x, T* y, int64_t rows, int64_t cols);

/// dx (=|+=) y * (dy - sum(dy * y)). dx may be dy.
template <class T>
void softmax_backward(Cpu, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols, Write write);
template <class T>
void softmax_backward(Cuda, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                      Write write);

/// y[r] = x[r] - logsumexp(x[r]); y may be x.
template <class T>
void log_softmax(Cpu, const T* x, T* y, int64_t rows, int64_t cols);
template <class T>
void log_softmax(Cuda, const T* x, T* y, int64_t rows, int64_t cols);

/// dx (=|+=) dy - exp(y) * sum(dy). dx may be dy.
template <class T>
void log_softmax_backward(Cpu, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                          Write write);
template <class T>
void log_softmax_backward(Cuda, const T* y, const T* dy, T* dx, int64_t rows, int64_t cols,
                          Write write);

}  // namespace tapestry::kernels
