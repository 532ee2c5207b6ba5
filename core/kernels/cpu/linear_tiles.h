// The dense layer on tiles: each operand is packed once, the activation and its derivative are
// taken while the values are in the cache.
#pragma once

#include "core/kernels/matmul/linear.h"

namespace tapestry::kernels {

/// linear() and linear_backward() where runs_on_tiles<T>(shape.precision).
template <class T>
void linear_on_tiles(const LinearShape& shape, const LinearForward<T>& args);
template <class T>
void linear_backward_on_tiles(const LinearShape& shape, const LinearBackward<T>& args);

}  // namespace tapestry::kernels
