// Checks and copies of parameters and state tensors by name.
#pragma once

#include "autograd/var.h"

namespace tapestry {

/// Throws, naming `who`, unless names and tensors are distinct (a tied parameter is listed once)
/// and all are floating, of one dtype on one device (running statistics of bfloat16 are float32).
void check_parameters(const char* who, const NamedVars& params);

/// Copies every tensor of `source` into the tensor of that name in `target`. Throws, naming `who`
/// and the tensor, and leaves the target as it was, unless names, shapes and dtypes are the same;
/// the order may differ.
void copy_named(const char* who, const NamedTensors& source, const NamedTensors& target);

}  // namespace tapestry
