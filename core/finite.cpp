#include "core/finite.h"

namespace tapestry {
namespace {

// An exponent of ones only, which the compiler finds in many elements at a time.
template <class Bits, Bits kExponent>
std::optional<int64_t> first_with(const void* data, int64_t count) {
  constexpr int64_t kPart = 4096;
  const auto* const bits = static_cast<const Bits*>(data);
  const auto is_none = [&](int64_t i) { return (bits[i] & kExponent) == kExponent; };
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t end = std::min(count, begin + kPart);
    bool any = false;
    for (int64_t i = begin; i < end; ++i) any |= is_none(i);
    for (int64_t i = begin; any && i < end; ++i) {
      if (is_none(i)) return i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> first_not_finite(const Tensor& tensor) {
  const Tensor host = tensor.to(Device{});
  switch (host.dtype()) {
    case DType::kFloat32:
      return first_with<uint32_t, 0x7f800000u>(host.raw(), host.numel());
    case DType::kFloat64:
      return first_with<uint64_t, 0x7ff0000000000000u>(host.raw(), host.numel());
    case DType::kBFloat16:
      return first_with<uint16_t, 0x7f80u>(host.raw(), host.numel());
    case DType::kInt32:
      break;
  }
  return std::nullopt;
}

}  // namespace tapestry
