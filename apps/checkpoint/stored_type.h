// The types of elements in files of tensors, and their types in memory.
#pragma once

#include <cstdint>
#include <limits>
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
/// Inverse.
StoredType stored_as(DType dtype);
/// "BF16", as the header of a file has it.
const char* code_of(StoredType type);
/// Bytes of an element.
uint64_t bytes_of(StoredType type);
/// Nothing if no type has this code.
std::optional<StoredType> stored_type(std::string_view code);
/// All codes: "F32, F64, ...".
std::string stored_codes();

/// Converts elements of a file, aligned for their type, into all of `to`, a tensor of a type that
/// fits in host memory. False when one has no place there.
bool convert_elements(StoredType type, const char* from, const Tensor& to);
/// The other way round, for floating types: the bytes of a part of a tensor on any device, rounded
/// to the nearest.
std::string elements_as(StoredType type, const Tensor& part);
/// The first number that rounds to infinity as the floating type: half a step above its largest.
constexpr double infinite_from(StoredType type) {
  if (type == StoredType::kF16) return 65520;
  if (type == StoredType::kBF16) return 0x1.FFp127;
  if (type == StoredType::kF32) return 0x1.FFFFFFp127;
  return std::numeric_limits<double>::infinity();
}
/// The place of the first number of a tensor in host memory whose magnitude is `limit` or more.
/// Numbers that are not finite count only with `finite`.
std::optional<int64_t> first_from(double limit, const Tensor& values, bool finite = false);

}  // namespace tapestry
