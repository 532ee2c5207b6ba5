// Products of float32 matrices with factors rounded to bfloat16, on what bfloat16_kernel() says.
#pragma once

#include "core/bfloat16_kernel.h"
#include "core/blas_cpu.h"
#include "core/kernels/gemm.h"

namespace tapestry::kernels {

/// blas_product() with both factors rounded to the nearest bfloat16 (ties to even, subnormal
/// numbers to 0), on the calling thread. Sums are float32, in an order that only k decides on tiles
/// and pairs, and the shape on float32 products. alpha must be 1, beta 0 or 1.
/// This processor must have `kernel`.
void rounded_product(const BlasProduct<float>& product, Bfloat16Kernel kernel = bfloat16_kernel());

/// Whether products of `precision` run on tiles here: then operands are packed once for all threads
/// (tile_operand.h), and grids of tile_grid.h are not wanted.
bool runs_on_tiles(Precision precision);

/// gemm() on tiles, on all threads.
void tile_gemm(const Gemm<float>& args);

}  // namespace tapestry::kernels
