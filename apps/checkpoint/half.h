// IEEE 754 binary16, the float16 of files. No tensor in memory has this type.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tapestry {

/// The largest finite value.
inline constexpr double kLargestHalf = 65504;

/// Exact.
inline float half_value(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31,
                 fraction = bits & 1023;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// The nearest value, of two the even one; infinite from 65520 on.
inline uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);  // not a number
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  const auto rounded = [](uint32_t number, uint32_t shift) {
    const uint32_t rest = number & ((1u << shift) - 1), middle = 1u << (shift - 1);
    const uint32_t kept = number >> shift;
    return kept + (rest > middle || (rest == middle && (kept & 1) != 0) ? 1 : 0);
  };
  if (magnitude >= 0x38800000u) {  // 2^-14, the least normal one
    return static_cast<uint16_t>(sign | rounded(magnitude - (uint32_t{112} << 23), 13));
  }
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return static_cast<uint16_t>(sign);  // below half of the least one
  const uint32_t fraction = (magnitude & 0x7FFFFFu) | 0x800000u;
  return static_cast<uint16_t>(sign | rounded(fraction, 126 - exponent));
}

/// The same of a double, rounded once.
inline uint16_t half_bits(double value) {
  // Cut to float with the last bit set where something was lost: such a number is no middle of two
  // halves, and rounds as the whole one would.
  auto narrow = static_cast<float>(value);
  if (std::isfinite(narrow) && static_cast<double>(narrow) != value) {
    if (std::abs(static_cast<double>(narrow)) > std::abs(value)) {
      narrow = std::nextafter(narrow, 0.0f);
    }
    narrow = std::bit_cast<float>(std::bit_cast<uint32_t>(narrow) | 1u);
  }
  return half_bits(narrow);
}

}  // namespace tapestry
