// Finds infinities and NaNs, the signs of a diverged or damaged model.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace tapestry {

/// The row-major index of the first element that is infinite or NaN; nothing if all are finite or
/// integers. Copies a GPU's tensor to the host.
std::optional<int64_t> first_not_finite(const Tensor& tensor);

}  // namespace tapestry
