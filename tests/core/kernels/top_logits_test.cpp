#include "core/kernels/top_logits.h"

#include <algorithm>

#include "tests/core/kernels/kernel_testing.h"

namespace tapestry {
namespace {

constexpr double kInfiniteLogit = std::numeric_limits<double>::infinity();

// One row: log(sum(exp)), then pairs.
template <class T>
Values<double> top_of(const Values<T>& logits, int64_t vocab, int64_t count,
                      const Values<int32_t>& banned = {}) {
  const auto rows = static_cast<int64_t>(logits.size()) / vocab;
  Values<double> top(static_cast<size_t>(rows * (1 + 2 * count)), -7);
  kernels::top_logits(TestDevice{}, {rows, vocab, count}, logits.data(),
                      banned.empty() ? nullptr : banned.data(), top.data());
  return top;
}

template <class T>
void expect_top(const Values<T>& logits, int64_t vocab, int64_t count,
                const Values<int32_t>& banned = {}) {
  SCOPED_TRACE(testing::Message() << vocab << " tokens, top " << count);
  const Values<double> top = top_of(logits, vocab, count, banned);
  for (size_t r = 0; r < logits.size() / static_cast<size_t>(vocab); ++r) {
    std::vector<std::pair<double, int64_t>> order;  // (-logit, token)
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      const double z = as_double(logits[r * static_cast<size_t>(vocab) + static_cast<size_t>(v)]);
      sum += std::exp(z);
      const bool allowed =
          banned.empty() ||
          (static_cast<uint32_t>(banned[static_cast<size_t>(v / 32)]) >> v % 32 & 1) == 0;
      if (allowed && z > -kInfiniteLogit) order.emplace_back(-z, v);
    }
    std::sort(order.begin(), order.end());
    const double* const result = &top[r * static_cast<size_t>(1 + 2 * count)];
    EXPECT_NEAR(result[0], std::log(sum), 20 * kEpsilon<Wider<T>> * (1 + std::abs(std::log(sum))));
    for (size_t k = 0; k < static_cast<size_t>(count); ++k) {
      const bool there = k < order.size();
      EXPECT_EQ(result[1 + 2 * k], there ? static_cast<double>(order[k].second) : -1) << k;
      EXPECT_EQ(result[2 + 2 * k], there ? -order[k].first : -kInfiniteLogit) << k;
    }
  }
}

template <class T>
class TopLogitsTest : public FloatingTest<T> {};
TYPED_TEST_SUITE(TopLogitsTest, DeviceTypes);

TYPED_TEST(TopLogitsTest, EqualsASortedRow) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t vocab : {1, 2, 31, 64, 257, 3001}) {
      const auto logits = random_values<T>(3 * vocab, 3, -8, 8);
      for (const int64_t count : {1, 2, 12}) expect_top<T>(logits, vocab, count);
    }
  });
}

TYPED_TEST(TopLogitsTest, BannedTokensCountInTheSumAlone) {
  using T = TypeParam;
  on_every_target([] {
    for (const int64_t vocab : {1, 31, 33, 257, 3001}) {
      const auto logits = random_values<T>(2 * vocab, 3, -8, 8);
      Values<int32_t> some = random_ints((vocab + 31) / 32, 5, 1 << 30);
      for (const int64_t count : {1, 12}) {
        expect_top<T>(logits, vocab, count, some);
        expect_top<T>(logits, vocab, count, Values<int32_t>(some.size(), -1));
      }
    }
  });
}

// Logits of few values: the lower token comes first, wherever the equal ones lie.
TYPED_TEST(TopLogitsTest, TiesGoToTheLowerToken) {
  using T = TypeParam;
  on_every_target([] {
    const auto steps = random_ints(2 * 1000, 5, 4);
    Values<T> logits;
    for (const int32_t step : steps) logits.push_back(static_cast<T>(step));
    expect_top<T>(logits, 1000, 9);
    expect_top<T>(Values<T>(300, T{0}), 300, 7);
  });
}

TYPED_TEST(TopLogitsTest, WhatIsImpossibleIsNotFound) {
  using T = TypeParam;
  Values<T> logits(500, static_cast<T>(-kInfiniteLogit));
  logits[400] = T{1}, logits[17] = T{-3};
  on_every_target([&] { expect_top<T>(logits, 500, 4); });
}

TYPED_TEST(TopLogitsTest, NumbersThatAreNoneAreTold) {
  using T = TypeParam;
  on_every_target([] {
    for (const double bad : {std::nan(""), kInfiniteLogit}) {
      for (const int64_t at : {0, 40, 99}) {
        auto logits = random_values<T>(100, 3);
        logits[static_cast<size_t>(at)] = static_cast<T>(bad);
        EXPECT_FALSE(std::isfinite(top_of<T>(logits, 100, 3)[0])) << bad << " at " << at;
      }
    }
    const Values<T> nothing(100, static_cast<T>(-kInfiniteLogit));
    EXPECT_FALSE(std::isfinite(top_of<T>(nothing, 100, 3)[0]));
  });
}

TYPED_TEST(TopLogitsTest, NoRows) {
  using T = TypeParam;
  EXPECT_TRUE(top_of<T>({}, 10, 3, {}).empty());
}

}  // namespace
}  // namespace tapestry
