// Products of float32 matrices with factors rounded to bfloat16.
//
// oneDNN 2.6 multiplies weights that are bfloat16 and packed beforehand at 202 to 218 GFLOP/s a
// thread where this gets 173 to 180 with all packing included (layers of three models, see the
// benchmarks). In training the weights are float32 and change with every update, so each product
// must pack them; and oneDNN does not say in which order it adds.
#pragma once

#include "core/blas_cpu.h"

namespace tapestry::kernels {

/// blas_product() with both factors rounded to the nearest bfloat16 (ties to even, subnormal
/// numbers to 0) while they are packed. Sums are float32, in an order that only k decides. alpha
/// must be 1, beta 0 or 1. Call it only on processors
/// with AVX512-BF16.
void packed_bf16_product(const BlasProduct<float>& product);

}  // namespace tapestry::kernels
