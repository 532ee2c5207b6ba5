// States in 8 bits: the layout, and how it rounds.
#include "core/kernels/optimizer_float8.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr Float8 kFormats[] = {{true}, {false}};

TEST(Float8Test, EveryCodeComesBack) {
  for (const Float8 format : kFormats) {
    float before = 0;
    for (uint32_t magnitude = 0; magnitude <= format.most(); ++magnitude) {
      const auto code = static_cast<uint8_t>(magnitude);
      for (const float scale : {1.0F, 0x1p-100F, 0x1p90F}) {
        const float value = format.decoded(code, scale);
        for (const uint32_t draw : {0U, 0x12345678U, 0xffffffffU}) {
          EXPECT_EQ(format.encoded(value, scale, draw), code);
          if (!format.is_signed || code == 0) continue;
          EXPECT_EQ(format.encoded(-value, scale, draw), code | 128);
          EXPECT_EQ(format.decoded(static_cast<uint8_t>(code | 128), scale), -value);
        }
      }
      const float value = format.decoded(code, 1);
      EXPECT_TRUE(magnitude == 0 || value > before);
      EXPECT_TRUE(magnitude < 2 || value <= before * 1.125F);
      before = value;
    }
    EXPECT_EQ(before, 1.875F);
  }
  EXPECT_EQ(Float8{true}.decoded(1, 1), 0x1.2p-15F);
  EXPECT_EQ(Float8{false}.decoded(1, 1), 0x1.2p-31F);
}

TEST(Float8Test, AScaleLeavesRoomForTheLargest) {
  EXPECT_EQ(float8_scale(1), 1);
  EXPECT_EQ(float8_scale(1.875F), 1);
  EXPECT_EQ(float8_scale(1.876F), 2);
  EXPECT_EQ(float8_scale(0.3F), 0.25F);
  EXPECT_EQ(float8_scale(0), 0x1p-126F);
  EXPECT_EQ(float8_scale(3e38F), 0x1p126F);
}

// The mean of many roundings is the number, but for squares below the smallest one.
TEST(Float8Test, RoundsRightInTheMean) {
  constexpr int kDraws = 200000;
  for (const Float8 format : kFormats) {
    const float least = std::bit_cast<float>(format.least());
    for (const float value : {1.01F, 0.7F, 0.123F, 3e-3F, 1.05F * least, 0.3F * least}) {
      double sum = 0;
      for (uint32_t i = 0; i < kDraws; ++i) {
        sum += format.decoded(format.encoded(value, 1, float8_draw(i, 7, 1)), 1);
      }
      const bool floored = !format.is_signed && value < least;
      EXPECT_NEAR(sum / kDraws / (floored ? least : value), 1, 0.01) << value;
    }
    EXPECT_EQ(format.encoded(0, 1, 0), 0);
  }
}

}  // namespace
}  // namespace tapestry
