#include "data/corpora/mixture.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "data/batches/batching.h"
#include "data/corpora/permutation.h"
#include "tests/data/files/files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Permutations, GiveEveryNumberOnce) {
  for (const int64_t size : {1, 2, 3, 4, 5, 31, 64, 65, 1000, 4097}) {
    std::set<int64_t> seen;
    const Permutation order(size, {7, 1, 2});
    for (int64_t i = 0; i < size; ++i) seen.insert(order(i));
    EXPECT_EQ(std::ssize(seen), size);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
}

// Each place gets each row equally often, whatever the seed: chi-squared over 3,000 seeds.
TEST(Permutations, HaveNoFavourites) {
  constexpr int64_t kSize = 1000, kBins = 10, kSeeds = 3000;
  for (const int64_t place : {0, 1, 499, 999}) {
    std::vector<double> counts(kBins, 0);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Permutation order(kSize, {seed, 0, 5});
      ++counts[static_cast<size_t>(order(place) * kBins / kSize)];
    }
    double chi_squared = 0;
    const double expected = double{kSeeds} / kBins;
    for (const double count : counts) {
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi_squared, 39);  // 9 degrees: one in 100,000
  }
  // Neighbours do not stay neighbours: differences in both directions, and of all sizes.
  const Permutation order(kSize, {1, 0, 5});
  int64_t up = 0, near = 0;
  for (int64_t i = 1; i < kSize; ++i) {
    up += order(i) > order(i - 1) ? 1 : 0;
    near += std::abs(order(i) - order(i - 1)) < 50 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(up), 500, 60);
  EXPECT_NEAR(static_cast<double>(near), 97, 50);
}

std::vector<int64_t> mixed_rows(const EpochRows& rows) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < rows.size(); ++i) all.push_back(rows[i]);
  return all;
}

TEST(Mixtures, WithoutWeightsHaveEachRowOnce) {
  for (const Mixture& mixture : {Mixture(5), Mixture(5, {2, 3}, {}, 1),
                                 Mixture(5, {2, 3}, {{0, 0}}, 1), Mixture(5, {5}, {{3}}, 1)}) {
    EXPECT_THAT(mixed_rows(mixture.epoch(3)), ElementsAre(0, 1, 2, 3, 4));
  }
}

TEST(Mixtures, AreExactInEveryEpoch) {
  // 3 and 1, of 70 and 30 rows: 75 and 25 of the 100 rows of an epoch.
  const Mixture mixture(100, {70, 30}, {{3, 1}}, 1);
  std::vector<int64_t> counts(100, 0);
  for (int64_t epoch = 0; epoch < 42; ++epoch) {
    int64_t of_first = 0;
    const auto rows = mixed_rows(mixture.epoch(epoch));
    ASSERT_EQ(rows.size(), 100U);
    for (const int64_t row : rows) {
      ++counts[static_cast<size_t>(row)];
      of_first += row < 70 ? 1 : 0;
    }
    EXPECT_EQ(of_first, 75);
    // Whole passes, and the beginning of one more.
    const auto [least, most] = std::minmax_element(counts.begin(), counts.begin() + 70);
    EXPECT_LE(*most - *least, 1);
    const auto [least_2, most_2] = std::minmax_element(counts.begin() + 70, counts.end());
    EXPECT_LE(*most_2 - *least_2, 1);
  }
  EXPECT_EQ(counts[0], 45);  // 42 * 75 / 70
  EXPECT_EQ(counts[99], 35);
}

TEST(Mixtures, OfFractionsDoNotDrift) {
  const Mixture mixture(100, {20, 30, 50}, {{1, 1, 1}}, 1);
  std::map<int, int64_t> all;
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    for (const int64_t row : mixed_rows(mixture.epoch(epoch)))
      ++all[row < 20 ? 0 : row < 50 ? 1 : 2];
    for (const auto& [corpus, count] : all) {
      EXPECT_NEAR(static_cast<double>(count), static_cast<double>(100 * (epoch + 1)) / 3, 0.51);
    }
  }
}

TEST(Mixtures, PassesHaveOrdersOfTheirOwn) {
  const Mixture mixture(100, {50, 50}, {{1, 1}}, 1);
  const auto first = mixed_rows(mixture.epoch(0)), second = mixed_rows(mixture.epoch(1));
  EXPECT_NE(first, second);
  EXPECT_EQ(first, mixed_rows(mixture.epoch(0)));
  EXPECT_NE(first, mixed_rows(Mixture(100, {50, 50}, {{1, 1}}, 2).epoch(0)));
  // The two corpora do not walk in step.
  int64_t equal = 0;
  for (size_t i = 0; i < 50; ++i) equal += first[i] + 50 == first[i + 50] ? 1 : 0;
  EXPECT_LT(equal, 10);
}

TEST(Mixtures, OfATemperature) {
  // p ~ n^(1/T): 900 and 100 with T = 2 are 30 to 10; T = 1 leaves them, a large T makes them even.
  const auto of_first = [](double temperature) {
    const auto rows = mixed_rows(Mixture(1000, {900, 100}, {{}, temperature}, 1).epoch(0));
    return std::count_if(rows.begin(), rows.end(), [](int64_t row) { return row < 900; });
  };
  EXPECT_EQ(of_first(2), 750);
  EXPECT_EQ(of_first(1), 900);
  EXPECT_EQ(of_first(1e6), 500);
  EXPECT_EQ(of_first(1e-3), 1000);
}

TEST(Mixtures, RefuseWhatHasNoMeaning) {
  const auto error = [](MixOptions options) {
    return error_of(ErrorKind::kConfig, [&] { Mixture(5, {2, 3}, options, 1); });
  };
  EXPECT_THAT(error({{1, 0}}), HasSubstr("weight must be above 0 for each corpus of the list"));
  EXPECT_THAT(error({{1, -1}}), HasSubstr("weight must be in [0, 1e6], got -1."));
  EXPECT_THAT(error({{1, 2}, 5}), HasSubstr("temperature decides the shares"));
  EXPECT_THAT(error({{1, NAN}}), HasSubstr("got nan."));
  EXPECT_THAT(error({{1, 2, 3}}), HasSubstr("a weight for each of 2 corpora, got 3."));
}

ParallelCorpus two_corpora(int64_t first, int64_t second) {
  ParallelCorpus corpus;
  corpus.parts = {first, second};
  for (int64_t i = 0; i < first + second; ++i) {
    const auto length = 1 + philox_below({7, 0, 0}, static_cast<uint64_t>(i), 30);
    corpus.source.push_back(std::vector<int32_t>(length, static_cast<int32_t>(4 + i % 90)));
    corpus.target.push_back(std::vector<int32_t>(length, 4));
  }
  return corpus;
}

TEST(Mixtures, OfBatchesResumeAnywhere) {
  const ParallelCorpus corpus = two_corpora(100, 300);
  for (const int64_t window_rows : {1000, 150}) {
    BatchOptions options;
    options.batch_size = 300;
    options.mix.weights = {3, 1};
    options.window_rows = window_rows;
    TranslationBatches batches(corpus, options);
    int64_t of_first = 0, all = 0;
    do {
      for (const int64_t row : batches.next().indices) {
        of_first += row < 100 ? 1 : 0;
        ++all;
      }
    } while (batches.position().batch < batches.batches_in_epoch());
    EXPECT_EQ(of_first, 300);
    EXPECT_EQ(all, 400);
    expect_resumes([&](DataPosition start) { return TranslationBatches(corpus, options, start); },
                   [](const TranslationBatch& batch) { return batch.source.to_vector<int32_t>(); });
  }
  BatchOptions in_order;
  in_order.mix.weights = {3, 1};
  in_order.shuffle = false;
  EXPECT_EQ(plans_of(corpus, in_order).batches(0, 0), EpochPlan(corpus, in_order, 0).batches());
}

}  // namespace
}  // namespace tapestry
