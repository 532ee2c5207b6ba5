// The types of elements in files of tensors, and their types in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace tapestry {

/// The types that are read.
enum class StoredType { kF64, kF32, kF16, kBF16, kI64, kI32, kU8, kBool };
/// "float16", in the words of DType.
const char* name_of(StoredType type);
/// True if elements of `type` can be read into a tensor of `dtype`: floating types into each other,
/// integers and truth values into int32.
bool fits(StoredType type, DType dtype);
/// The same type of Tensor, if it has it.
std::optional<DType> as_dtype(StoredType type);
/// "BF16", as the header of a file has it.
const char* code_of(DType dtype);
/// Bytes of an element.
uint64_t bytes_of(StoredType type);
/// Nothing if no type has this code.
std::optional<StoredType> stored_type(std::string_view code);
/// All codes: "F32, F64, ...".
std::string stored_codes();

/// Converts elements of a file, aligned for their type, into all of `to`, a tensor of a type that
/// fits in host memory. False when one has no place there.
bool convert_elements(StoredType type, const char* from, const Tensor& to);

}  // namespace tapestry
