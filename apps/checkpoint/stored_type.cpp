#include "apps/checkpoint/stored_type.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ranges>
#include <type_traits>

#include "apps/checkpoint/half.h"
#include "core/base/text.h"
#include "core/dispatch.h"
#include "core/kernels/elementwise/convert.h"

namespace tapestry {
namespace {

struct TypeRow {
  StoredType type;
  const char* code;  ///< in a header
  const char* name;
  uint64_t bytes;
  std::optional<DType> dtype = {};
};

constexpr TypeRow kTypes[] = {
    {StoredType::kF32, "F32", "float32", 4, DType::kFloat32},
    {StoredType::kF64, "F64", "float64", 8, DType::kFloat64},
    {StoredType::kBF16, "BF16", "bfloat16", 2, DType::kBFloat16},
    {StoredType::kI32, "I32", "int32", 4, DType::kInt32},
    {StoredType::kF16, "F16", "float16", 2},
    {StoredType::kI64, "I64", "int64", 8},
    {StoredType::kU8, "U8", "uint8", 1},
    {StoredType::kBool, "BOOL", "bool", 1},
};

const TypeRow& row_of(StoredType type) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes),
                       [&](const TypeRow& row) { return row.type == type; });
}

const TypeRow& row_of(DType dtype) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes),
                       [&](const TypeRow& row) { return row.dtype == dtype; });
}

template <class From>
void convert_floating(const char* from, const Tensor& to) {
  const int64_t n = to.numel();
  dispatch_dtype(to.dtype(), [&](auto type) {
    kernels::convert(Cpu{}, reinterpret_cast<const From*>(from), to.data<decltype(type)>(), n);
  });
}

}  // namespace

const char* name_of(StoredType type) { return row_of(type).name; }

bool fits(StoredType type, DType dtype) {
  const bool floating = type == StoredType::kF64 || type == StoredType::kF32 ||
                        type == StoredType::kF16 || type == StoredType::kBF16;
  return floating == is_floating(dtype);
}

std::optional<DType> as_dtype(StoredType type) { return row_of(type).dtype; }

StoredType stored_as(DType dtype) { return row_of(dtype).type; }

const char* code_of(StoredType type) { return row_of(type).code; }

uint64_t bytes_of(StoredType type) { return row_of(type).bytes; }

std::optional<StoredType> stored_type(std::string_view code) {
  const auto* const row = std::ranges::find(kTypes, code, &TypeRow::code);
  if (row == std::end(kTypes)) return std::nullopt;
  return row->type;
}

std::string stored_codes() { return join(std::views::transform(kTypes, &TypeRow::code), ", "); }

bool convert_elements(StoredType type, const char* from, const Tensor& to) {
  const int64_t n = to.numel();
  const auto into_ints = [&](auto first, int64_t least, int64_t most) {
    using From = decltype(first);
    const auto* const values = reinterpret_cast<const From*>(from);
    auto* const out = to.data<int32_t>();
    for (int64_t i = 0; i < n; ++i) {
      const auto value = static_cast<int64_t>(values[i]);
      if (value < least || value > most) return false;
      out[i] = static_cast<int32_t>(value);
    }
    return true;
  };
  using Int = std::numeric_limits<int32_t>;
  switch (type) {
    case StoredType::kF64:
      convert_floating<double>(from, to);
      return true;
    case StoredType::kF32:
      convert_floating<float>(from, to);
      return true;
    case StoredType::kBF16:
      convert_floating<BFloat16>(from, to);
      return true;
    case StoredType::kF16:
      dispatch_dtype(to.dtype(), [&](auto dtype) {
        auto* const out = to.data<decltype(dtype)>();
        const auto* const halves = reinterpret_cast<const uint16_t*>(from);
        for (int64_t i = 0; i < n; ++i)
          out[i] = element_cast<decltype(dtype)>(half_value(halves[i]));
      });
      return true;
    case StoredType::kI64:
      return into_ints(int64_t{}, Int::min(), Int::max());
    case StoredType::kI32:
      return into_ints(int32_t{}, Int::min(), Int::max());
    case StoredType::kU8:
      return into_ints(uint8_t{}, 0, 255);
    case StoredType::kBool:
      return into_ints(uint8_t{}, 0, 1);
  }
  return false;
}

std::string elements_as(StoredType type, const Tensor& part) {
  if (type != StoredType::kF16) {
    const Tensor host = part.to(*as_dtype(type)).to(Device{});
    return {static_cast<const char*>(host.raw()), static_cast<size_t>(host.bytes())};
  }
  const Tensor host = part.to(Device{});
  std::string bytes(static_cast<size_t>(host.numel()) * sizeof(uint16_t), '\0');
  dispatch_dtype(host.dtype(), [&](auto dtype) {
    using T = decltype(dtype);
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const T* const values = host.data<T>();
    for (int64_t i = 0; i < host.numel(); ++i) {
      const uint16_t half = half_bits(element_cast<Wide>(values[i]));
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof half, &half, sizeof half);
    }
  });
  return bytes;
}

std::optional<int64_t> first_from(double limit, const Tensor& values, bool finite) {
  std::optional<int64_t> found;
  dispatch_dtype(values.dtype(), [&](auto dtype) {
    const auto* const x = values.data<decltype(dtype)>();
    for (int64_t i = 0; i < values.numel() && !found; ++i) {
      const double value = std::abs(element_cast<double>(x[i]));
      if (std::isfinite(value) ? value >= limit : finite) found = i;
    }
  });
  return found;
}

}  // namespace tapestry
