// A safetensors file that is made while it is read.
#pragma once

#include <string>
#include <vector>

#include "apps/checkpoint/safetensors.h"

namespace tapestry {

/// The file that write_safetensors() would write. Only the tensor that was read last is in memory.
/// `name` is for messages.
ByteSource safetensors_source(std::vector<TensorToWrite> tensors, const std::string& name);

}  // namespace tapestry
