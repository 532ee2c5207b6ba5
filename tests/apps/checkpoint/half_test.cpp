// float16 against its definition: every value, and every middle between two.
#include "apps/checkpoint/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tapestry {
namespace {

double defined(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

TEST(Half, EachValueComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((half >> 10 & 31) == 31) continue;
    const float value = half_value(half);
    EXPECT_EQ(value, defined(half));
    EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0);
    EXPECT_EQ(half_bits(value), half);
    EXPECT_EQ(half_bits(static_cast<double>(value)), half);
  }
  EXPECT_EQ(half_bits(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(half_bits(-std::numeric_limits<double>::infinity()), 0xFC00);
  EXPECT_TRUE(std::isnan(half_value(half_bits(std::nanf("")))));
}

// A middle goes to the even neighbour, numbers beside it to the nearer one; also numbers that only
// a double can tell from the middle.
TEST(Half, IsTheNearest) {
  for (uint16_t low = 0; low < 0x7BFF; ++low) {
    const uint16_t high = low + 1, even = low % 2 == 0 ? low : high;
    const double middle = (defined(low) + defined(high)) / 2;
    EXPECT_EQ(half_bits(static_cast<float>(middle)), even) << middle;
    EXPECT_EQ(half_bits(-middle), even | 0x8000);
    const auto single = static_cast<float>(middle);
    EXPECT_EQ(half_bits(std::nextafter(single, 0.0f)), low);
    EXPECT_EQ(half_bits(std::nextafter(single, 1e9f)), high);
    EXPECT_EQ(half_bits(std::nextafter(middle, 0.0)), low);
    EXPECT_EQ(half_bits(std::nextafter(middle, 1e9)), high);
  }
  EXPECT_EQ(half_bits(65519.996f), 0x7BFF);
  EXPECT_EQ(half_bits(65520.0f), 0x7C00);
  EXPECT_EQ(half_bits(std::nextafter(65520.0, 0.0)), 0x7BFF);
}

}  // namespace
}  // namespace tapestry
