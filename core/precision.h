// How dense layers, and attention where bfloat16 runs on AMX, multiply float32 tensors. Everything
// else (activations, norms, the optimizer and all sums) computes in the tensors' own type, and
// products of float64 and bfloat16 tensors do so too.
#pragma once

#include "core/device.h"

namespace tapestry {

/// Belongs to a model: its ParamStore has one, and its dense layers pass it on to the kernels. So
/// models of different precisions live in one program.
enum class Precision {
  kFull,      ///< factors as they are stored
  kBfloat16,  ///< on a CPU: both factors rounded to bfloat16, sums in float32
  kTf32,      ///< on a GPU: both factors may be rounded to TF32 (10 bits of fraction)
};

/// Throws Error(kConfig) when `device` cannot multiply so: kBfloat16 needs a CPU with AVX512-BF16,
/// kTf32 a GPU.
void check_precision(Precision precision, Device device);

/// Whether this processor has AVX512-BF16.
bool can_multiply_bfloat16();

}  // namespace tapestry
