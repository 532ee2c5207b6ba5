// sum_axis between element types: for results in bfloat16 whose terms or partial sums are floats.
// Only .cu files include this.
#pragma once

#include "core/kernels/elementwise/broadcast_loops.h"

namespace tapestry {

/// y (outer, inner) (=|+=) scale * the sum of x (outer, n, inner) over n. For T to T, T to
/// Wider<T>, and Wider<T> to T.
template <class In, class Out>
void sum_axis_cuda(const AxisSum& sizes, const In* x, Out* y, double scale, Write write);

}  // namespace tapestry
