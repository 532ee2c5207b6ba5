// Products of bfloat16 matrices, and of float32 matrices rounded to it, on the instructions that
// bfloat16_kernel() names.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/cpu/bfloat16_kernel.h"
#include "core/kernels/cpu/factor.h"
#include "core/precision.h"

namespace tapestry::kernels {

/// C (m, n) (=|+=) A (m, k) B (k, n); C has ldc floats between rows.
struct RoundedProduct {
  int64_t m = 0, n = 0, k = 0;
  Factor a, b;
  float* c = nullptr;
  int64_t ldc = 0;
  bool add = false;
};

/// On the calling thread. Factors of float are rounded to the nearest bfloat16 (ties to even,
/// subnormal numbers to 0). Subnormal bfloat16 count as 0 but with kWidened. Sums are float32, in
/// an order that only k decides on tiles, and the shape on float32 products. This processor must
/// have `kernel`.
void rounded_product(const RoundedProduct& product, Bfloat16Kernel kernel = bfloat16_kernel());

/// True if bfloat16 products run on tiles here: operands are then packed once for all threads
/// (tile_operand.h), without grids of tile_grid.h.
bool bfloat16_runs_on_tiles();
/// True if products of T run on tiles; those of float do with kBf16x3.
template <class T>
bool runs_on_tiles(Precision precision) {
  if constexpr (std::is_same_v<T, BFloat16>) return bfloat16_runs_on_tiles();
  return std::is_same_v<T, float> && precision == Precision::kBf16x3 && bfloat16_runs_on_tiles();
}

}  // namespace tapestry::kernels
