// Products of float32 matrices whose factors are rounded to bfloat16 on the way.
#pragma once

#include "core/blas_cpu.h"

namespace tapestry::kernels {

/// blas_product() with both factors rounded to the nearest bfloat16 (ties to even, what is below
/// the smallest normal number to 0) while they are packed; sums in float32, in an order that k
/// alone decides. alpha must be 1, beta 0 or 1. Call it only where can_multiply_bfloat16().
void packed_bf16_product(const BlasProduct<float>& product);

}  // namespace tapestry::kernels
