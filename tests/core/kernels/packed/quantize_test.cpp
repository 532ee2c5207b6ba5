#include "core/kernels/packed/quantize.h"

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

struct Rounded {
  float scale;
  std::vector<int> q;
};

Rounded rounded(const Values<float>& x, uint8_t flip = 0) {
  std::vector<uint8_t> bytes(x.size() + 1, 0x5a);
  Rounded result{};
  result.scale =
      kernels::quantize_row(x.data(), static_cast<int64_t>(x.size()), flip, bytes.data());
  EXPECT_EQ(bytes.back(), 0x5a) << "wrote behind the row";
  bytes.pop_back();
  for (const uint8_t byte : bytes) {
    result.q.push_back(flip == 0 ? static_cast<int8_t>(byte) : static_cast<int>(byte));
  }
  return result;
}

TEST(QuantizeTest, TiesGoToTheEvenInteger) {
  on_every_target([] {
    // The largest is 127, so that the scale is 1.
    const Rounded row = rounded({127, .5, 1.5, 2.5, -.5, -1.5, -2.5, 3.499F, -3.501F, 126.5, -126.5,
                                 0, -0.0F, 125.5, 64.5, -64.5, 1e-30F, -127});
    EXPECT_EQ(row.scale, 1);
    EXPECT_EQ(row.q, (std::vector{127, 0, 2, 2, 0, -2, -2, 3, -4, 126, -126, 0, 0, 126, 64, -64, 0,
                                  -127}));
  });
}

TEST(QuantizeTest, EveryLengthEqualsTheFormula) {
  on_every_target([] {
    for (const int64_t n : {1, 2, 7, 8, 15, 16, 17, 31, 33, 257}) {
      SCOPED_TRACE(n);
      for (const double size : {1e-20, 1.0, 3e30}) {
        const auto x = random_values<float>(n, 3, -size, size);
        float max = 0;
        for (const float v : x) max = std::max(max, std::abs(v));
        std::vector<int> expected, unsigned_ones;
        for (const float v : x) {
          expected.push_back(static_cast<int>(std::nearbyint(v * (127 / max))));
          unsigned_ones.push_back(expected.back() + 128);
        }
        const Rounded row = rounded(x);
        EXPECT_EQ(row.scale, max / 127);
        EXPECT_EQ(row.q, expected);
        EXPECT_EQ(rounded(x, 0x80).q, unsigned_ones);
      }
    }
  });
}

// 127 / max is rounded, and so is its product with max: neither may reach 128.
TEST(QuantizeTest, TheLargestBecomes127) {
  on_every_target([] {
    auto x = random_values<float>(4096, 9, -100, 100);
    for (float& v : x) {
      EXPECT_EQ(rounded({v}).q[0], v > 0 ? 127 : -127) << v;
      EXPECT_EQ(rounded({0, v, -v}).q,
                v > 0 ? (std::vector{0, 127, -127}) : (std::vector{0, -127, 127}));
    }
  });
}

TEST(QuantizeTest, ARowOfZerosHasTheScaleZero) {
  on_every_target([] {
    for (const float least : {0.0F, -0.0F, 1e-38F, -1e-42F}) {
      const Rounded row = rounded(Values<float>(19, least));
      EXPECT_EQ(row.scale, 0);
      EXPECT_EQ(row.q, std::vector<int>(19, 0));
      EXPECT_EQ(rounded(Values<float>(19, least), 0x80).q, std::vector<int>(19, 128));
    }
  });
}

TEST(QuantizeTest, WhatIsNotFiniteMakesTheScaleNan) {
  on_every_target([] {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float bad : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
      for (const size_t place : {0, 5, 18}) {
        Values<float> x(19, 1);
        x[place] = bad;
        EXPECT_TRUE(std::isnan(rounded(x).scale)) << bad << " at " << place;
      }
    }
  });
}

}  // namespace
}  // namespace tapestry
