// How dense layers multiply float32 tensors. Everything else (activations, norms, attention, the
// optimizer and all sums) computes in the tensors' own type.
#pragma once

namespace tapestry {

enum class Precision {
  kFull,      ///< factors as they are stored
  kBfloat16,  ///< both factors rounded to bfloat16, sums in float32
};

/// What linear layers and fused classifiers use from now on, forward and backward. Call it before
/// the first step. float64 tensors always keep kFull. Throws Error(kConfig) when this processor
/// cannot multiply bfloat16.
void set_dense_precision(Precision precision);
Precision dense_precision();

/// Whether this processor has AVX512-BF16.
bool can_multiply_bfloat16();

}  // namespace tapestry
