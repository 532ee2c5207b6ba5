// Fake quantisation: numbers become those that integers of eight or four bits stand for, and stay
// in their type. A model that trains through it learns weights that packing will not change much
// (Jacob et al. 2018, "Quantization and training of neural networks", 3).
#pragma once

#include "core/kernels/common.h"

namespace tapestry {

/// How packed products (packed/packed_linear.h) round a row of numbers.
enum class Rounding {
  kInt8,        ///< quantize_row() of the whole row
  kInt8Groups,  ///< quantize_row() of each 32 columns: what int4 weights are multiplied by
  kInt4,        ///< round_to_int4() of each 32 columns, their scale in bfloat16
};

namespace kernels {

/// y (rows, cols) = x rounded, in float32 whatever T is; y may be x. The bits that packing has on a
/// CPU, and those of int8 on a GPU, too.
template <class T>
void fake_quantize(Cpu, Rounding rounding, const T* x, T* y, int64_t rows, int64_t cols);
template <class T>
void fake_quantize(Cuda, Rounding rounding, const T* x, T* y, int64_t rows, int64_t cols);

}  // namespace kernels
}  // namespace tapestry
