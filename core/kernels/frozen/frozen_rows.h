// Numbers of a row of a FrozenMatrix in vectors.
#pragma once

#include <cstdint>

#include "core/kernels/common.h"
#include "core/kernels/cpu/simd_select.h"
#include "core/kernels/packed/packed_matrix.h"

namespace tapestry {

/// Columns [begin, end) of a row as FrozenMatrix has it in memory, of `cols` columns; begin is a
/// multiple of its group.
template <class T>
struct FrozenRows {
  using Read = void (*)(const uint8_t* row, int64_t cols, int64_t begin, int64_t end, T* out);
  Read bfloat16, int8, int4;

  Read of(WeightFormat format) const {
    return format == WeightFormat::kBFloat16 ? bfloat16
           : format == WeightFormat::kInt8   ? int8
                                             : int4;
  }
};

/// The functions for this processor's instruction set: of float and BFloat16.
template <class T>
const FrozenRows<T>& frozen_rows_functions();

}  // namespace tapestry
