// How dense layers multiply float32 tensors. Everything else computes in the tensors' own type
// (bfloat16 in float), and products of float64 and bfloat16 tensors do so too.
#pragma once

#include <string>

#include "core/cpu/bfloat16_kernel.h"
#include "core/device.h"

namespace tapestry {

/// A property of a model: its ParamStore has one, and its dense layers and fused classifier pass it
/// on to the kernels, so models of different precisions can live in one program. Attention is
/// always at full precision.
enum class Precision {
  kFull,  ///< factors as they are stored
  kTf32,  ///< on a GPU: both factors may be rounded to TF32 (10 bits of fraction)
  /// On a CPU with AMX: each factor is a sum of two bfloat16 (16 bits of fraction), and their
  /// three larger products are added in float32. The error is about 4e-6 of a result's size, that
  /// of kFull 3e-7.
  kBf16x3,
};

/// "full", "tf32", "bf16x3".
constexpr const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kFull:
      return "full";
    case Precision::kTf32:
      return "tf32";
    case Precision::kBf16x3:
      return "bf16x3";
  }
  return nullptr;
}

/// Why a processor that multiplies bfloat16 on `kernel` has no kBf16x3; empty: it has.
std::string why_no_bf16x3(Bfloat16Kernel kernel);

/// Throws Error(kConfig) when `device` cannot multiply so: kTf32 needs a GPU, kBf16x3 a CPU with
/// AMX.
void check_precision(Precision precision, Device device);

}  // namespace tapestry
