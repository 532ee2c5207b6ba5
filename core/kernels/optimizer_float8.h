// States of an optimizer in 8 bits. A block of kStateBlock numbers shares a scale, the least power
// of two by which all are at most 1.875. A number is (1 + (c % 8) / 8) * 2^(c / 8 - e) * scale, c
// its magnitude: signed ones have 7 bits of it and e = 15, others 8 and e = 31; c = 0 is 0. So each
// has the same relative precision over 2^16 of a mean of gradients and over 2^32 of one of their
// squares, where steps of one size would make most of a block 0 (Dettmers et al. 2022, "8-bit
// optimizers via block-wise quantization", have steps that grow with the number, too).
//
// Numbers are rounded up or down at random, as bfloat16 ones are, so that a mean of many small
// steps is right. A square below the smallest number becomes that one, not 0: steps are divided by
// it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/kernels/optimizer.h"

namespace tapestry {

/// Layout of a number by its sign.
struct Float8 {
  bool is_signed;

  constexpr uint32_t most() const { return is_signed ? 127 : 255; }
  /// Added to the bits of a float whose bits are those of the magnitude in the right place.
  constexpr uint32_t bias() const { return is_signed ? (127U - 15) << 23 : (127U - 31) << 23; }
  constexpr uint32_t least() const { return (1U << 20) + bias(); }

  float decoded(uint8_t code, float scale) const {
    const uint32_t magnitude = code & most();
    const float value = magnitude == 0 ? 0 : std::bit_cast<float>((magnitude << 20) + bias());
    return (is_signed && code > 127 ? -value : value) * scale;
  }
  /// `draw`: 32 random bits.
  uint8_t encoded(float value, float scale, uint32_t draw) const {
    const float x = std::abs(value) * (1 / scale);
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    uint32_t code = 0;
    if (bits >= least()) {
      code = ((bits + (draw >> 12)) >> 20) - (bias() >> 20);
      code = code < most() ? code : most();
    } else {
      const float share = std::bit_cast<float>((draw >> 9) | 0x3f800000U) - 1;
      code = x > (is_signed ? share * std::bit_cast<float>(least()) : 0) ? 1 : 0;
    }
    return static_cast<uint8_t>(is_signed && std::signbit(value) ? code | 128U : code);
  }
};

/// The scale of numbers of which `most` is the largest.
inline float float8_scale(float most) {
  constexpr uint32_t kLeast = 1U << 23, kMost = 253U << 23;
  const uint32_t bits = (std::bit_cast<uint32_t>(most) + 0xfffffU) & 0x7f800000U;
  return std::bit_cast<float>(bits < kLeast ? kLeast : bits > kMost ? kMost : bits);
}

/// The draw for state `k` of element `i` in update `number`.
inline uint32_t float8_draw(uint32_t i, uint32_t number, uint32_t k) {
  uint32_t x = i * 0x9e3779b1U ^ (number * 0x85ebca77U + k * 0xc2b2ae3dU);
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

}  // namespace tapestry
