#include "data/scores/sampled_ratio.h"

#include <gtest/gtest.h>

#include "core/base/philox.h"

namespace tapestry {
namespace {

// scipy.stats.t.ppf(0.975, n)
TEST(SampledRatio, QuantilesAreStudents) {
  const std::pair<int64_t, double> known[] = {{1, 12.7062},  {2, 4.30265},   {3, 3.18245},
                                              {4, 2.77645},  {5, 2.57058},   {10, 2.22814},
                                              {30, 2.04227}, {1000, 1.96234}};
  for (const auto& [n, quantile] : known) {
    EXPECT_NEAR(student_t_975(n), quantile, 3e-3 * quantile) << n;
  }
}

// Of 0, 1, 1, 0 and 1: mean 0.6, standard deviation sqrt(0.3), by the square root of 5.
TEST(SampledRatio, OfEqualGroupsIsAMeanWithItsStandardError) {
  SampledRatio hits;
  for (const double hit : {0, 1, 1, 0, 1}) hits.add(hit, 1);
  EXPECT_DOUBLE_EQ(hits.value(), 0.6);
  EXPECT_NEAR(hits.margin(), 2.7764 * std::sqrt(0.3 / 5), 1e-3);
  EXPECT_DOUBLE_EQ(hits.interval().low, 0.6 - hits.margin());
  SampledRatio one;
  one.add(3, 2);
  EXPECT_EQ(one.value(), 1.5);
  EXPECT_TRUE(std::isnan(one.margin()));
}

// Groups of very different sizes: 95 of 100 intervals hold the ratio that the groups come from.
TEST(SampledRatio, IntervalsHoldTheRatioInNineteenOfTwentyCases) {
  const auto uniform = [](uint64_t place) {
    return static_cast<double>(philox_below({7, 0, 0}, place, 1 << 20)) / (1 << 20);
  };
  int held = 0;
  uint64_t place = 0;
  const int cases = 2000;
  for (int i = 0; i < cases; ++i) {
    SampledRatio ratio;
    for (int group = 0; group < 30; ++group) {
      const double size = 1 + 9 * uniform(place++);
      ratio.add(size * (1 + uniform(place++)), size);  // about 1.5
    }
    held += std::abs(ratio.value() - 1.5) <= ratio.margin() ? 1 : 0;
  }
  EXPECT_NEAR(held, 0.95 * cases, 4 * std::sqrt(cases * 0.95 * 0.05));
}

}  // namespace
}  // namespace tapestry
