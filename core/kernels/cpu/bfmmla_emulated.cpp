// The loops of bfmmla_products.cpp on any processor, with the same bits.
#include <bit>
#include <cmath>
#include <limits>

#include "core/kernels/cpu/tile_units.h"
#include "core/kernels/cpu/word_vectors.h"

namespace tapestry::kernels {
namespace {

// A number of double that is a float: what lies below the normal ones is 0, what lies above all is
// infinite, a NaN is the one of ARM64.
float as_float(double x) {
  if (std::isnan(x)) return std::bit_cast<float>(0x7fc00000U);
  if (std::abs(x) < std::numeric_limits<float>::min())
    return std::copysign(0.0F, static_cast<float>(x));
  if (std::abs(x) >= 0x1p128)
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(x));
  return static_cast<float>(x);
}

// a + b rounded to odd: a sum that is no float becomes the neighbour whose last bit is 1.
float add_to_odd(float a, float b) {
  double sum = static_cast<double>(a) + b;
  if (!std::isfinite(sum)) return as_float(sum);
  // What rounding the sum to double lost (Knuth).
  const double rest = sum - a, lost = (a - (sum - rest)) + (b - rest);
  auto bits = std::bit_cast<uint64_t>(sum);
  if (lost != 0 && bits % 2 == 0) bits += (lost > 0) == (sum > 0) ? 1 : -1;
  // Of the 29 bits that a float does not have, all that matters is whether there is one.
  constexpr uint64_t kBelow = (uint64_t{1} << 29) - 1;
  if ((bits & kBelow) != 0) bits = (bits & ~kBelow) | (kBelow + 1);
  return as_float(std::bit_cast<double>(bits));
}

struct Isa : PlainWords {
  static V multiply(V sums, const V& rows, const V& columns) {
    for (size_t i = 0; i < 2; ++i) {
      for (size_t j = 0; j < 2; ++j) {
        auto sum = std::bit_cast<float>(sums[2 * i + j]);
        for (size_t pair = 0; pair < 2; ++pair) {
          const uint32_t a = rows[2 * i + pair], b = columns[2 * j + pair];
          sum = add_to_odd(flushed(sum),
                           add_to_odd(product(a << 16, b << 16), product(a & kUpper, b & kUpper)));
        }
        sums[2 * i + j] = std::bit_cast<uint32_t>(sum);
      }
    }
    return sums;
  }

 private:
  static constexpr uint32_t kUpper = 0xffff0000;
  static float flushed(float x) { return as_float(x); }
  // Of two bfloat16; exact but at the ends of the exponents.
  static float product(uint32_t a, uint32_t b) {
    return as_float(static_cast<double>(flushed(std::bit_cast<float>(a))) *
                    flushed(std::bit_cast<float>(b)));
  }
};

}  // namespace
}  // namespace tapestry::kernels

#include "core/kernels/cpu/square_products-inl.h"

namespace tapestry::kernels {
void EmulatedSquares::multiply_block(const TileBlock& block, float* c, int64_t ldc, bool add) {
  multiply_squares(block, c, ldc, add);
}
}  // namespace tapestry::kernels
