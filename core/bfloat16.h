// bfloat16: the upper half of a float. A storage type: arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>

#include "core/base/host_device.h"

namespace tapestry {

struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN, on a GPU always the same one.
  TAPESTRY_HOST_DEVICE explicit BFloat16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));  // sm_80 and later
#else
    const auto word = std::bit_cast<uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    bits = static_cast<uint16_t>(nan ? (word >> 16) | 0x40u : rounded >> 16);
#endif
  }
  TAPESTRY_HOST_DEVICE explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  bool operator==(const BFloat16&) const = default;
};

/// The type of sums, statistics and single values of T: float for BFloat16, else T.
template <class T>
struct WiderOf {
  using type = T;
};
template <>
struct WiderOf<BFloat16> {
  using type = float;
};
template <class T>
using Wider = typename WiderOf<T>::type;

}  // namespace tapestry
