// Products of float32 whose sums have one order on every processor.
#pragma once

#include "core/cpu/blas_cpu.h"
#include "core/cpu/portable_bits.h"

namespace tapestry::kernels {

/// As blas_product(): C = alpha * sum + beta * C, where a sum grows from 0 along k in ascending
/// order by fused multiply-add. So it has the bits of a packed matrix's product
/// (kernels/packed/packed_linear.h), and each element those of the whole product, however C is cut.
void ordered_product(const BlasProduct<float>& product);

/// blas_product(), or where bits must be portable ordered_product().
inline void product(const BlasProduct<float>& p) {
  has_portable_bits() ? ordered_product(p) : blas_product(p);
}
inline void product(const BlasProduct<double>& p) { blas_product(p); }

}  // namespace tapestry::kernels
