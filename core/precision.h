// How dense layers multiply float32 tensors. Everything else computes in the tensors' own type
// (bfloat16 in float), and products of float64 and bfloat16 tensors do so too.
#pragma once

#include "core/device.h"

namespace tapestry {

/// Belongs to a model: its ParamStore has one, and its dense layers pass it on to the kernels. So
/// models of different precisions live in one program.
enum class Precision {
  kFull,  ///< factors as they are stored
  kTf32,  ///< on a GPU: both factors may be rounded to TF32 (10 bits of fraction)
};

/// Throws Error(kConfig) when `device` cannot multiply so: kTf32 needs a GPU.
void check_precision(Precision precision, Device device);

}  // namespace tapestry
