// Shared by the tests of frozen matrices.
#pragma once

#include "core/kernels/frozen/frozen_matrix.h"

namespace tapestry {

/// The formats that a frozen matrix has.
inline constexpr WeightFormat kFrozenFormats[] = {WeightFormat::kBFloat16, WeightFormat::kInt8,
                                                  WeightFormat::kInt4};

}  // namespace tapestry
