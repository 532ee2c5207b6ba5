// Sums over one axis.
#pragma once

#include "core/kernels/common.h"

namespace tapestry::kernels {

/// Seen as x (outer, n, inner): y (outer, inner) (=|+=) scale * sum over n.
template <class X, class Y>
void sum_axis(Cpu, const X* x, Y* y, int64_t outer, int64_t n, int64_t inner, double scale,
              Write write);
template <class T>
void sum_axis(Cuda, const T* x, T* y, int64_t outer, int64_t n, int64_t inner, double scale,
              Write write);

}  // namespace tapestry::kernels
