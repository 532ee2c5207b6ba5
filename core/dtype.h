#pragma once

#include <cstdint>
#include <ostream>

namespace tapestry {

enum class DType : int { kFloat32, kFloat64, kInt32 };

constexpr int64_t size_of(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kInt32: return "int32";
  }
  return "?";
}

inline std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> { static constexpr DType value = DType::kFloat32; };
template <>
struct DTypeOf<double> { static constexpr DType value = DType::kFloat64; };
template <>
struct DTypeOf<int32_t> { static constexpr DType value = DType::kInt32; };

/// DType of the C++ element type: dtype_of<float> == DType::kFloat32.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace tapestry
