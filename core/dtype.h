#pragma once

#include <cstdint>
#include <ostream>

#include "core/bfloat16.h"

namespace tapestry {

enum class DType : int { kFloat32, kFloat64, kInt32, kBFloat16 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
      return 2;
  }
  return 0;
}

/// The dtype of Wider<T>, for statistics and single values.
constexpr DType wider(DType dtype) { return dtype == DType::kBFloat16 ? DType::kFloat32 : dtype; }

constexpr bool is_floating(DType dtype) { return dtype != DType::kInt32; }

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "?";
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};

/// DType of the C++ element type: dtype_of<float> == DType::kFloat32.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace tapestry
