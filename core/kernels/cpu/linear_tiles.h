// The dense layer on tiles: each operand is packed once, the activation and its derivative are
// taken while the values are in the cache.
#pragma once

#include "core/kernels/linear.h"

namespace tapestry::kernels {

/// linear() and linear_backward() where bfloat16_runs_on_tiles().
void linear_on_tiles(const LinearShape& shape, const LinearForward<BFloat16>& args);
void linear_backward_on_tiles(const LinearShape& shape, const LinearBackward<BFloat16>& args);

}  // namespace tapestry::kernels
