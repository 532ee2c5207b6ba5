#include "nn/models/preference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tapestry {
namespace {

using Loss = PreferenceLoss;
using Numbers = std::vector<double>;

double log_sigmoid(double x) { return -std::log1p(std::exp(-x)); }

/// Two examples: log-probabilities, tokens and the reference of their answers.
class PreferenceTest : public testing::Test {
 protected:
  ComparedAnswers answers() const {
    return {Var(Tensor::from(l_, {4})), t_, Tensor::from(l0_, {4})};
  }
  double loss(const PreferenceOptions& options, double normalizer = 0) const {
    return preference_loss(answers(), options, normalizer).loss.value().item();
  }
  // The mean of f(example), with the places of its answers.
  template <class F>
  static double mean(F f) {
    return (f(size_t{0}, size_t{1}) + f(size_t{2}, size_t{3})) / 2;
  }
  double by_token(size_t i) const { return l_[i] / static_cast<double>(t_[i]); }
  double moved(size_t i) const { return l_[i] - l0_[i]; }

  const Numbers l_ = {-3, -2.5, -7, -1.25}, l0_ = {-3.5, -2, -6, -3};
  const std::vector<int64_t> t_ = {3, 2, 4, 1};
};

TEST_F(PreferenceTest, Dpo) {
  const auto apart = [&](size_t c, size_t r) { return 0.3 * (moved(c) - moved(r)); };
  EXPECT_NEAR(loss({.beta = 0.3}),
              mean([&](size_t c, size_t r) { return -log_sigmoid(apart(c, r)); }), 1e-12);
  EXPECT_NEAR(loss({.beta = 0.3, .label_smoothing = 0.1}), mean([&](size_t c, size_t r) {
                return -0.9 * log_sigmoid(apart(c, r)) - 0.1 * log_sigmoid(-apart(c, r));
              }),
              1e-12);
}

TEST_F(PreferenceTest, IpoIsByToken) {
  const auto of = [&](size_t i) { return moved(i) / static_cast<double>(t_[i]); };
  EXPECT_NEAR(loss({.loss = Loss::kIpo, .beta = 0.25}),
              mean([&](size_t c, size_t r) { return std::pow(of(c) - of(r) - 2, 2); }), 1e-12);
}

TEST_F(PreferenceTest, Orpo) {
  const auto log_odds = [&](size_t i) { return by_token(i) - std::log(1 - std::exp(by_token(i))); };
  EXPECT_NEAR(loss({.loss = Loss::kOrpo, .beta = 0.4}), mean([&](size_t c, size_t r) {
                return -by_token(c) - 0.4 * log_sigmoid(log_odds(c) - log_odds(r));
              }),
              1e-12);
}

TEST_F(PreferenceTest, SimpoWithLikelihood) {
  const PreferenceOptions options{
      .loss = Loss::kSimpo, .beta = 2, .margin = 0.5, .chosen_weight = 0.2};
  EXPECT_NEAR(loss(options), mean([&](size_t c, size_t r) {
                return -log_sigmoid(2 * (by_token(c) - by_token(r)) - 0.5) - 0.2 * by_token(c);
              }),
              1e-12);
}

TEST_F(PreferenceTest, TheSumsAreOfExamples) {
  for (const Loss kind : {Loss::kDpo, Loss::kIpo, Loss::kOrpo, Loss::kSimpo}) {
    const PreferenceOptions options{.loss = kind};
    const CrossEntropy result = preference_loss(answers(), options, 8);
    EXPECT_EQ(result.tokens, 2);
    EXPECT_NEAR(result.loss.value().item(), loss(options) / 4, 1e-12);
    EXPECT_NEAR(result.loss_sum(), 2 * loss(options), 1e-12);
    EXPECT_NEAR(result.nll_sum(), -by_token(0) - by_token(2), 1e-12);
    // Only the first one's better answer has the larger reward.
    EXPECT_EQ(result.correct(), 1) << "the second one's worse answer has the larger reward";
  }
}

TEST_F(PreferenceTest, AModelThatDidNotMovePrefersNothing) {
  ComparedAnswers still = answers();
  still.reference = still.log_probabilities.value();
  const CrossEntropy result = preference_loss(still, {});
  EXPECT_NEAR(result.loss.value().item(), std::log(2), 1e-12);
  EXPECT_EQ(result.correct(), 0);
  EXPECT_EQ(rewards(still, {}).value().to_vector<double>(), Numbers(4, 0.0));
}

}  // namespace
}  // namespace tapestry
