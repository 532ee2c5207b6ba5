// Products of float32 matrices with factors rounded to bfloat16.
#pragma once

#include "core/blas_cpu.h"

namespace tapestry::kernels {

/// blas_product() with both factors rounded to the nearest bfloat16 (ties to even, subnormal
/// numbers to 0) while they are packed. Sums are float32, in an order that only k decides. alpha
/// must be 1, beta 0 or 1. Call it only where can_multiply_bfloat16().
void packed_bf16_product(const BlasProduct<float>& product);

}  // namespace tapestry::kernels
