// The safetensors format: a JSON header with dtype, shape and place of each tensor, then the bytes.
#pragma once

#include <map>
#include <string>

#include "core/tensor.h"

namespace tapestry {

/// The bytes of a safetensors file, tensors in the given order, data aligned to 64 bytes.
/// Throws on a duplicate name.
std::string safetensors_bytes(const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata = {});

/// Parses such bytes (F32, F64, I32); `name` is the file's, for messages. Checks before it reads:
/// header at most 100 MB, offsets contiguous from 0 in file order, shape product without overflow
/// and equal to the byte count, exact file length, no duplicate keys. Throws Error(kData).
NamedTensors parse_safetensors(const std::string& bytes, const std::string& name);

}  // namespace tapestry
