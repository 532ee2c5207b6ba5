// Numbers that are none: what a diverged or damaged model is made of.
#pragma once

#include <optional>

#include "core/tensor.h"

namespace tapestry {

/// The place, row-major, of the first element that is infinite or not a number; nothing where all
/// are finite, or integers. Copies a GPU's tensor to the host.
std::optional<int64_t> first_not_finite(const Tensor& tensor);

}  // namespace tapestry
