#include "data/n_best/weight_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

/// The mean of a number that each hypothesis has, over the mean of another one.
class Quality : public Metric {
 public:
  std::string name() const override { return "quality"; }
  std::string signature() const override { return ""; }
  size_t width() const override { return 2; }
  void measure(std::span<const std::string_view>, std::span<const std::string>,
               double*) const override {}
  double score(const double* sums) const override { return 100 * sums[0] / sums[1]; }
  Sample score(const float* sums) const override { return {100 * sums[0] / sums[1], true}; }
};

using Sentences = std::vector<ScoredHypotheses>;
using Weights = std::vector<double>;

double draw(uint64_t sentence, uint64_t index) {
  return philox_normal({7, static_cast<uint32_t>(sentence), 3}, index);
}

/// Sentences of six hypotheses with four values: noise, 5, the quality in thousandths plus
/// `disturbance`, and that disturbance in tens.
Sentences made_up(double disturbance, size_t sentences = 60) {
  Sentences made;
  for (size_t s = 0; s < sentences; ++s) {
    ScoredHypotheses one;
    for (uint64_t h = 0; h < 6; ++h) {
      const double quality = std::round(50 + 10 * draw(s, 3 * h));
      const double wrong = disturbance * draw(s, 3 * h + 1);
      one.values.insert(one.values.end(),
                        {draw(s, 3 * h + 2), 5, (quality + wrong) / 1000, wrong * 10});
      one.statistics.insert(one.statistics.end(), {quality, 100});
    }
    made.push_back(std::move(one));
  }
  return made;
}

/// Three measures of the quality, each with much noise: no weights are right.
Sentences noisy(size_t sentences) {
  Sentences made;
  for (size_t s = 0; s < sentences; ++s) {
    ScoredHypotheses one;
    for (uint64_t h = 0; h < 8; ++h) {
      const double quality = std::round(50 + 10 * draw(s, 4 * h));
      for (uint64_t k = 1; k <= 3; ++k) one.values.push_back(quality + 15 * draw(s, 4 * h + k));
      one.statistics.insert(one.statistics.end(), {quality, 100});
    }
    made.push_back(std::move(one));
  }
  return made;
}

double best_possible(const Sentences& sentences) {
  double sum = 0;
  for (const ScoredHypotheses& one : sentences) {
    double best = 0;
    for (size_t i = 0; i < one.statistics.size(); i += 2) best = std::max(best, one.statistics[i]);
    sum += best;
  }
  return sum / static_cast<double>(sentences.size());
}

TEST(WeightTuningTest, TheFeatureThatIsTheTruthIsFound) {
  const Sentences sentences = made_up(0);
  const TunedWeights tuned = tune_weights(Quality(), sentences, {1, 1, 0, 0}, {});
  EXPECT_LT(tuned.before, 60);
  EXPECT_DOUBLE_EQ(tuned.after, best_possible(sentences));
  EXPECT_DOUBLE_EQ(tuned.after, score_of_choice(Quality(), sentences, tuned.weights));
  EXPECT_GT(tuned.weights[2], 0.9);
  // What is the same everywhere says nothing; the last value is 0.
  EXPECT_THAT(tuned.useless, testing::ElementsAre(false, true, false, true));
  EXPECT_EQ(tuned.weights[1], 0);
  EXPECT_EQ(tuned.weights[3], 0);
}

TEST(WeightTuningTest, TwoFeaturesAreTheTruthTogether) {
  const Sentences sentences = made_up(40);
  const TunedWeights tuned =
      tune_weights(Quality(), sentences, {1, 1, 1, 1}, {.average_within = 0});
  EXPECT_DOUBLE_EQ(tuned.after, best_possible(sentences));
  // (quality + w) / 1000 - 10 w / 10000
  EXPECT_NEAR(tuned.weights[3] / tuned.weights[2], -1e-4, 5e-6);
  double sum = 0;
  for (const double weight : tuned.weights) sum += std::abs(weight);
  EXPECT_NEAR(sum, 1, 1e-5);
}

/// The best of two weights is on a circle, on which a fine grid finds nothing better.
TEST(WeightTuningTest, ALineIsSearchedExactly) {
  Sentences sentences = made_up(15);
  for (ScoredHypotheses& one : sentences) {
    std::vector<double> two;
    for (size_t i = 0; i < one.values.size(); i += 4) {
      two.insert(two.end(), {one.values[i] + 200 * one.values[i + 2], one.values[i + 3]});
    }
    one.values = two;
  }
  double best = 0;
  constexpr int kAngles = 40000;
  for (int i = 0; i < kAngles; ++i) {
    const double angle = 2 * std::numbers::pi * i / kAngles;
    const Weights weights = {std::cos(angle), std::sin(angle)};
    best = std::max(best, score_of_choice(Quality(), sentences, weights));
  }
  const TunedWeights tuned = tune_weights(Quality(), sentences, {1, 0}, {.average_within = 0});
  EXPECT_GT(tuned.after, tuned.before + 0.5);
  EXPECT_GE(tuned.after, best - 1e-9);
}

TEST(WeightTuningTest, EqualOnesGoToTheFirst) {
  const Weights weights = {1, -1};
  EXPECT_EQ(best_hypothesis(Weights{3, 1, 5, 3, 4, 3}, weights), 0U);
  EXPECT_EQ(best_hypothesis(Weights{3, 1, 5, 2, 4, 1}, weights), 1U);
  // Nothing is better than anything: the weights stay as they are.
  Sentences sentences(5);
  for (ScoredHypotheses& one : sentences) {
    one.values = {1, 2, 1, 2, 1, 2};
    one.statistics = {10, 100, 20, 100, 30, 100};
  }
  const TunedWeights tuned = tune_weights(Quality(), sentences, {2, 3}, {});
  EXPECT_THAT(tuned.weights, testing::ElementsAre(2, 3));
  EXPECT_EQ(tuned.before, 10);
  EXPECT_EQ(tuned.after, 10);
  EXPECT_THAT(tuned.useless, testing::ElementsAre(true, true));
  // The same where hypotheses differ, but not in what the metric counts.
  for (ScoredHypotheses& one : sentences) {
    one.values = {1, 2, 7, 1, 3, 9};
    one.statistics = {10, 100, 10, 100, 10, 100};
  }
  EXPECT_THAT(tune_weights(Quality(), sentences, {2, 3}, {}).weights, testing::ElementsAre(2, 3));
}

TEST(WeightTuningTest, ListsMayHaveOneHypothesis) {
  Sentences sentences = made_up(0, 10);
  for (size_t s = 0; s < 5; ++s) {
    sentences[s].values.resize(4);
    sentences[s].statistics.resize(2);
  }
  EXPECT_DOUBLE_EQ(tune_weights(Quality(), sentences, {1, 0, 0, 0}, {}).after,
                   best_possible(sentences));
}

TEST(WeightTuningTest, SmallerMayBeBetter) {
  const Sentences sentences = made_up(0);
  const TunedWeights tuned =
      tune_weights(Quality(), sentences, {0, 0, 1, 0}, {.larger_is_better = false});
  EXPECT_LT(tuned.after, 40);
  EXPECT_LT(tuned.weights[2], 0);
}

TEST(WeightTuningTest, SeedsDecideAndThreadsDoNot) {
  const Sentences sentences = noisy(60);
  std::vector<Weights> found;
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    found.push_back(tune_weights(Quality(), sentences, {1, 0, 0}, {.seed = 5}).weights);
  }
  set_num_threads(1);
  EXPECT_EQ(found[0], found[1]);
  // More starts never end lower.
  double before = 0;
  for (const int64_t starts : {1, 4, 16}) {
    const double after =
        tune_weights(Quality(), sentences, {1, 0, 0}, {.starts = starts, .average_within = 0})
            .after;
    EXPECT_GE(after, before);
    before = after;
  }
  // The mean of several good ones may be a little below the best.
  const TunedWeights one = tune_weights(Quality(), sentences, {1, 0, 0}, {.average_within = 0});
  const TunedWeights mean = tune_weights(Quality(), sentences, {1, 0, 0}, {.average_within = 0.5});
  EXPECT_GE(mean.after, (one.before + one.after) / 2);
  EXPECT_NE(mean.weights, one.weights);
}

TEST(WeightTuningTest, WhatCannotBeTunedIsRefused) {
  Sentences sentences = made_up(0, 4);
  EXPECT_THROW(tune_weights(Quality(), sentences, {0, 0, 0, 0}, {}), Error);
  EXPECT_THROW(tune_weights(Quality(), {}, {1}, {}), Error);
  sentences[2].values[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(tune_weights(Quality(), sentences, {1, 0, 0, 0}, {}), Error);
}

}  // namespace
}  // namespace tapestry
