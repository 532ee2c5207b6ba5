// The trials that a sweep draws, and the rungs of its halving.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "apps/config/tree.h"
#include "apps/run/sweep/halving.h"
#include "apps/run/sweep/space.h"
#include "apps/run/sweep/sweep.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

double number_behind(const std::string& override_text) {
  double value = 0;
  EXPECT_TRUE(parse_yaml_double(override_text.substr(override_text.find('=') + 1), value))
      << override_text;
  return value;
}

std::string complaint_of(const std::vector<std::string>& overrides, int64_t count = 4) {
  try {
    draw_trials(parse_sweep_space(overrides), count, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(SweepSpaceTest, ListsMakeAGridInOrder) {
  const SweepSpace space = parse_sweep_space({"model.dropout=0, 0.1", "threads=1",
                                              "training.optimizer={name: adam, betas: [0.9, 0.98]}",
                                              "training.learning_rate=1e-3,2e-3,\"a,b\""});
  EXPECT_THAT(space.fixed,
              ElementsAre("threads=1", "training.optimizer={name: adam, betas: [0.9, 0.98]}"));
  const SweepTrials trials = draw_trials(space, 0, 1);
  ASSERT_EQ(trials.size(), 6);
  EXPECT_THAT(trials[1], ElementsAre("model.dropout=0", "training.learning_rate=2e-3"));
  EXPECT_THAT(trials[5], ElementsAre("model.dropout=0.1", "training.learning_rate=\"a,b\""));
}

TEST(SweepSpaceTest, AFewCellsOfAGridAreDifferentOnes) {
  const SweepSpace space = parse_sweep_space({"a=1,2,3,4,5", "b=1,2,3,4,5"});
  const SweepTrials trials = draw_trials(space, 20, 7);
  EXPECT_EQ(std::set(trials.begin(), trials.end()).size(), 20);
  EXPECT_NE(trials, draw_trials(space, 20, 8));
}

TEST(SweepSpaceTest, WithoutAnAxisThereIsOneTrial) {
  EXPECT_THAT(draw_trials(parse_sweep_space({"threads=1"}), 0, 1), ElementsAre(ElementsAre()));
}

// A logarithmic range has as many draws below its geometric mean as above.
TEST(SweepSpaceTest, RangesAreDrawnByTheirScale) {
  const SweepSpace space =
      parse_sweep_space({"training.learning_rate=1e-4..1e-2:log", "model.dropout=0..0.5",
                         "training.warmup_steps=1..3"});
  const SweepTrials trials = draw_trials(space, 400, 1);
  int below_mean = 0, below_middle = 0;
  std::set<double> steps;
  for (const std::vector<std::string>& trial : trials) {
    const double rate = number_behind(trial[0]), dropout = number_behind(trial[1]);
    EXPECT_TRUE(rate >= 1e-4 && rate <= 1e-2) << rate;
    EXPECT_TRUE(dropout >= 0 && dropout <= 0.5) << dropout;
    below_mean += rate < 1e-3 ? 1 : 0;
    below_middle += dropout < 0.25 ? 1 : 0;
    steps.insert(number_behind(trial[2]));
  }
  EXPECT_NEAR(below_mean, 200, 40);  // four deviations of a fair coin
  EXPECT_NEAR(below_middle, 200, 40);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
}

// The config's reader takes no 1e+05 for an integer.
TEST(SweepSpaceTest, IntegersAreWrittenAsSuch) {
  const SweepSpace space = parse_sweep_space(
      {"training.warmup_steps=99999..100001", "training.max_steps=1e5..1e15:log"});
  std::set<std::string> warmups;
  for (const std::vector<std::string>& trial : draw_trials(space, 50, 1)) {
    int64_t steps = 0;
    EXPECT_TRUE(parse_yaml_integer(trial[1].substr(trial[1].find('=') + 1), steps)) << trial[1];
    warmups.insert(trial[0]);
  }
  EXPECT_THAT(warmups, ElementsAre("training.warmup_steps=100000", "training.warmup_steps=100001",
                                   "training.warmup_steps=99999"));
}

TEST(SweepSpaceTest, SmallNumbersAndNarrowRangesKeepTheirDigits) {
  const SweepSpace space = parse_sweep_space(
      {"training.learning_rate=1e-9..1e-7:log", "training.ema_decay=0.9991..0.9999"});
  std::set<double> rates, decays;
  for (const std::vector<std::string>& trial : draw_trials(space, 50, 1)) {
    rates.insert(number_behind(trial[0]));
    decays.insert(number_behind(trial[1]));
  }
  EXPECT_GT(rates.size(), 45);
  EXPECT_GT(decays.size(), 45);
  EXPECT_TRUE(*rates.begin() >= 1e-9 && *rates.rbegin() <= 1e-7);
  EXPECT_TRUE(*decays.begin() >= 0.9991 && *decays.rbegin() <= 0.9999);
}

TEST(SweepSpaceTest, ADrawDependsOnSeedKeyAndTrialOnly) {
  const auto rates = [](const std::vector<std::string>& overrides, int64_t count, uint64_t seed) {
    std::vector<std::string> values;
    for (const auto& trial : draw_trials(parse_sweep_space(overrides), count, seed)) {
      values.push_back(trial.back());
    }
    return values;
  };
  const std::string rate = "training.learning_rate=1e-4..1e-2:log";
  const std::vector<std::string> few = rates({rate}, 3, 1);
  std::vector<std::string> more = rates({"model.dropout=0..0.5", rate}, 9, 1);
  more.resize(3);
  EXPECT_EQ(few, more);
  EXPECT_NE(few, rates({rate}, 3, 2));
}

TEST(SweepSpaceTest, NonsenseIsAnError) {
  const std::string rate = "training.learning_rate=";
  EXPECT_THAT(complaint_of({rate + "1e-2..1e-4"}), HasSubstr("LOW < HIGH, got 0.01 and 1e-04"));
  EXPECT_THAT(complaint_of({rate + "0..1:log"}), HasSubstr("begins above 0, got 0"));
  EXPECT_THAT(complaint_of({rate + "1e-4..fast"}), HasSubstr("'fast' is no number"));
  EXPECT_THAT(complaint_of({rate + "1e-4...1e-1"}), HasSubstr("three dots are no range"));
  EXPECT_THAT(complaint_of({rate + "1..2:lin"}), HasSubstr("got ':lin'"));
  EXPECT_THAT(complaint_of({rate + "1,,2"}), HasSubstr("a value of the list is empty"));
  EXPECT_THAT(complaint_of({rate + "1,2,1"}), HasSubstr("'1' is there twice"));
  EXPECT_THAT(complaint_of({rate + "1,2", rate + "3"}), HasSubstr("is given twice"));
  EXPECT_THAT(complaint_of({"training.max_steps=1.5..3"}), HasSubstr("takes integers"));
  EXPECT_THAT(complaint_of({"learning"}), HasSubstr("expected KEY=LOW..HIGH"));
  EXPECT_THAT(complaint_of({rate + "1..2"}, 0), HasSubstr("expected --trials beside a range"));
  EXPECT_THAT(complaint_of({rate + "1,2"}, 3), HasSubstr("at most 2, which the lists have, got 3"));
  EXPECT_THAT(complaint_of({"training.max_steps=1..3"}, 4), HasSubstr("at most 3"));
  EXPECT_EQ(complaint_of({"data.train.text=../a.txt"}, 1), "");  // a path, no range
}

TEST(SweepHalvingTest, HalfOfTheTrialsGoOn) {
  const Halving halving = halving_of(std::vector<TrialLength>(12, {2000, 250}), 2);
  EXPECT_THAT(halving.trials, ElementsAre(12, 6, 3, 1));
  std::vector<int64_t> ends;
  for (const auto& updates : halving.updates) ends.push_back(updates.front());
  EXPECT_THAT(ends, ElementsAre(250, 500, 1000, 2000));
  EXPECT_EQ(halving.most_updates(), 12 * 250 + 6 * 250 + 3 * 500 + 1000);
}

TEST(SweepHalvingTest, RungsEndAtValidationsOfTheirTrial) {
  const Halving halving = halving_of({{900, 100}, {900, 100}, {450, 40}}, 3);
  EXPECT_THAT(halving.trials, ElementsAre(3, 1));
  EXPECT_THAT(halving.updates, ElementsAre(ElementsAre(300, 300, 120), ElementsAre(900, 900, 450)));
  // Too few validations for the four rungs of eight trials.
  EXPECT_EQ(halving_of(std::vector<TrialLength>(8, {100, 30}), 2).rungs(), 2);
}

// 98 / 7 / 7 is 2, and 98 * (1 / 7 / 7) is a little less.
TEST(SweepHalvingTest, RungsAreDividedAsIntegers) {
  const Halving halving = halving_of(std::vector<TrialLength>(49, {98, 1}), 7);
  ASSERT_EQ(halving.rungs(), 3);
  EXPECT_EQ(halving.updates[0].front(), 2);
  EXPECT_EQ(halving.updates[1].front(), 14);
}

TEST(SweepHalvingTest, NonsenseIsAnError) {
  const auto complaint = [](const std::vector<TrialLength>& lengths, int64_t factor) {
    try {
      halving_of(lengths, factor);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(complaint({{100, 10}}, 2), HasSubstr("at least 2 trials, got 1"));
  EXPECT_THAT(complaint({{100, 10}, {100, 10}}, 3), HasSubstr("--factor 3 trials, got 2"));
  EXPECT_THAT(complaint({{0, 10}, {100, 10}}, 2), HasSubstr("got 0 and 10"));
  EXPECT_THAT(complaint({{100, 100}, {100, 100}}, 2), HasSubstr("eval_steps 100 of"));
}

TEST(SweepHalvingTest, TheBestSurvive) {
  const std::vector<std::optional<double>> values = {3.0, std::nullopt, 1.0, 2.0, 1.0};
  EXPECT_THAT(survivors({0, 1, 2, 3, 4}, values, /*larger=*/false, 1), ElementsAre(2));
  EXPECT_THAT(survivors({0, 1, 2, 3, 4}, values, /*larger=*/false, 3), ElementsAre(2, 3, 4));
  EXPECT_THAT(survivors({0, 1, 2, 3, 4}, values, /*larger=*/true, 2), ElementsAre(0, 3));
  EXPECT_THAT(survivors({1, 4}, values, /*larger=*/true, 2), ElementsAre(4));
}

TEST(SweepTableTest, SmallMetricsKeepTheirDigits) {
  EXPECT_EQ(figure(27.3125), "27.3125");
  EXPECT_EQ(figure(0), "0.0000");
  EXPECT_EQ(figure(-0.05), "-0.05");
  EXPECT_EQ(figure(1.23456e-5), "1.235e-05");
}

// Values and interval of a worked example: mean 5, deviation 2, four values, t = 3.182.
TEST(SweepTableTest, TheIntervalIsStudents) {
  EXPECT_EQ(interval_of_mean({5}), 0);
  EXPECT_NEAR(interval_of_mean({3, 5, 5, 7}), 3.182 * std::sqrt(8.0 / 3) / 2, 1e-12);
}

}  // namespace
}  // namespace tapestry
