// Shows if two machines compute the same bits. It computes, because names of processors and
// libraries prove nothing.
#pragma once

#include <string>

#include "apps/config/config.h"
#include "core/dtype.h"

namespace tapestry {

/// XXH3 of a tiny model's parameters after two updates with the CPU's kernels: products, attention,
/// norms, activations, the loss and an optimizer. About 10 ms.
std::string kernel_probe(const Numbers& numbers);

}  // namespace tapestry
