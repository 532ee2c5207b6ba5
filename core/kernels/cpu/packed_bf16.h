// Products of bfloat16 matrices, with float32 sums.
//
// oneDNN 2.6 multiplies weights that are bfloat16 and packed beforehand at 202 to 218 GFLOP/s a
// thread where this gets 173 to 180 with all packing included (layers of three models, see the
// benchmarks). In training the weights change with every update, so each product must pack them;
// and oneDNN does not say in which order it adds.
#pragma once

#include "core/kernels/cpu/rounded_product.h"

namespace tapestry::kernels {

/// rounded_product() with pairs packed for VDPBF16PS. Sums are added in an order that only k
/// decides. Call it only on processors with AVX512-BF16.
void packed_bf16_product(const RoundedProduct& product);

}  // namespace tapestry::kernels
