#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/error.h"
#include "tests/optim/rate_fixture.h"

namespace tapestry {
namespace {

using enum ScheduleType;

ScheduleOptions complete(ScheduleType type) {
  return {.type = type,
          .warmup_steps = 10,
          .max_steps = 110,
          .step_size = 20,
          .gamma = type == kExponential ? 0.95 : 0.1,
          .num_cycles = 2,
          .decay_steps = 30,
          .model_size = 512};
}

std::string schedule_message(const ScheduleOptions& options, double base = 0.1) {
  try {
    validate(options, base);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Schedule, WarmsUpLinearlyFromTheFirstUpdate) {
  for (const ScheduleType type : kScheduleTypes) {
    const ScheduleOptions options = complete(type);
    const double peak = learning_rate(options, 0.5, 10);
    if (type != kNoam) {
      EXPECT_DOUBLE_EQ(peak, 0.5) << name_of(type);
    }
    for (int step = 1; step <= 10; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate(options, 0.5, step), peak * step / 10) << name_of(type);
    }
    EXPECT_LE(learning_rate(options, 0.5, 11), peak) << name_of(type);
    EXPECT_NEAR(learning_rate(options, 0.5, 11), peak, 0.06 * peak) << name_of(type);
  }
}

TEST(Schedule, DecaysAsHuggingFaceDefinesIt) {
  // lambda(step) of get_*_schedule_with_warmup, times the base rate.
  for (int step = 11; step <= 110; ++step) {
    const double progress = (step - 10) / 100.0;
    EXPECT_DOUBLE_EQ(learning_rate(complete(kConstant), 0.3, step), 0.3);
    EXPECT_NEAR(learning_rate(complete(kLinear), 0.3, step), 0.3 * (110 - step) / 100.0, 1e-15);
    EXPECT_NEAR(learning_rate(complete(kCosine), 0.3, step),
                0.3 * 0.5 * (1 + std::cos(std::numbers::pi * progress)), 1e-15);
    EXPECT_NEAR(learning_rate(complete(kInverseSqrt), 0.3, step),
                0.3 / std::sqrt((step + 10.0 - 10.0) / 10.0), 1e-15);
    ScheduleOptions polynomial = complete(kPolynomial);
    polynomial.power = 3;
    polynomial.min_learning_rate = 0.01;
    EXPECT_NEAR(learning_rate(polynomial, 0.3, step),
                (0.3 - 0.01) * std::pow(1 - progress, 3) + 0.01, 1e-15);
  }
}

TEST(Schedule, NoamEqualsThePaper) {
  const ScheduleOptions options{.type = kNoam, .warmup_steps = 4000, .model_size = 512};
  for (const int64_t step : {1, 17, 3999, 4000, 4001, 100000}) {
    const double t = static_cast<double>(step);
    const double paper =
        std::pow(512, -0.5) * std::min(std::pow(t, -0.5), t * std::pow(4000, -1.5));
    EXPECT_NEAR(learning_rate(options, 2.0, step), 2.0 * paper, 1e-15);
  }
  EXPECT_NEAR(learning_rate(options, 1.0, 4000), 6.9877e-4, 1e-8);  // the base model's peak
}

TEST(Schedule, InverseSqrtHalvesWhenTheStepsQuadruple) {
  const ScheduleOptions options{.type = kInverseSqrt, .warmup_steps = 4000};
  EXPECT_DOUBLE_EQ(learning_rate(options, 5e-4, 4000), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(options, 5e-4, 16000), 2.5e-4);
}

// Update t has gamma^floor((t - w) / size), as exponential has gamma^(t - w).
TEST(Schedule, StepLevelsBeginWithTheUpdatesThatStepSizeDivides) {
  ScheduleOptions options = complete(kStep);
  options.gamma = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 29), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 30), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 49), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 50), 0.2);
}

TEST(Schedule, NeverFallsBelowTheMinimum) {
  for (const ScheduleType type : kScheduleTypes) {
    ScheduleOptions options = complete(type);
    options.min_learning_rate = 0.004;
    const double last = learning_rate(options, 0.3, 110),
                 later = learning_rate(options, 0.3, 100000);
    EXPECT_GE(last, 0.004) << name_of(type);
    if (type == kConstant || type == kReduceOnPlateau) continue;
    EXPECT_DOUBLE_EQ(later, 0.004) << name_of(type);
    if (type == kLinear || type == kCosine || type == kPolynomial || type == kCosineWithRestarts ||
        type == kWarmupStableDecay) {
      EXPECT_DOUBLE_EQ(last, 0.004) << name_of(type);
    }
    if (type == kNoam) continue;
    ScheduleOptions by_share = complete(type);
    by_share.min_ratio = 0.004 / 0.3;
    for (const int64_t step : {1, 10, 11, 50, 110, 100000}) {
      EXPECT_NEAR(learning_rate(by_share, 0.3, step), learning_rate(options, 0.3, step), 1e-15)
          << name_of(type) << ' ' << step;
    }
  }
}

TEST(Schedule, EqualsPyTorchSchedulers) {
  auto fixture = testing_optim::read_rates("tests/fixtures/optim_schedules.txt");
  const auto compare = [&](const std::string& name, const ScheduleOptions& options) {
    const std::vector<double>& expected = fixture[name];
    ASSERT_EQ(expected.size(), 20u) << name;
    for (int t = 1; t <= 20; ++t) {
      EXPECT_NEAR(learning_rate(options, 0.2, t), expected[t - 1], 1e-15) << name << ' ' << t;
    }
  };
  compare("linear_warmup", {.type = kConstant, .warmup_steps = 10});
  compare("linear", {.type = kLinear, .max_steps = 20, .min_learning_rate = 0.05});
  compare("cosine", {.type = kCosine, .max_steps = 20, .min_learning_rate = 0.05});
  compare("polynomial", {.type = kPolynomial, .max_steps = 20, .power = 2});
  compare("step", {.type = kStep, .step_size = 4, .gamma = 0.5});
}

// Values of tests/fixtures/schedules.py.
TEST(Schedule, EqualsHuggingFacesSchedulers) {
  auto fixture = testing_optim::read_rates("tests/fixtures/schedules.txt");
  const auto compare = [&](const std::string& name, ScheduleOptions options) {
    const std::vector<double>& expected = fixture[name];
    ASSERT_EQ(expected.size(), 40u) << name;
    options.max_steps = 40;
    for (int t = 1; t <= 40; ++t) {
      EXPECT_NEAR(learning_rate(options, 0.2, t), expected[t - 1], 1e-15) << name << ' ' << t;
    }
  };
  compare("restarts_3", {.type = kCosineWithRestarts, .warmup_steps = 10, .num_cycles = 3});
  compare("restarts_1", {.type = kCosineWithRestarts});
  compare("exponential", {.type = kExponential, .gamma = 0.9});
  for (const DecayShape shape : kDecayShapes) {
    const std::string name = concat("stable_", name_of(shape));
    ScheduleOptions options{
        .type = kWarmupStableDecay, .warmup_steps = 10, .decay_steps = 12, .decay_type = shape};
    compare(name, options);
    options.min_ratio = 0.25;
    compare(name + "_min", options);
  }
}

TEST(Schedule, TheWarmupIsAShareOfTheRun) {
  // ceil(0.07 * 101) = 8, as TrainingArguments.get_warmup_steps has it.
  const ScheduleOptions share{.type = kLinear, .warmup_ratio = 0.07, .max_steps = 101};
  const ScheduleOptions steps{.type = kLinear, .warmup_steps = 8, .max_steps = 101};
  EXPECT_EQ(share.warmup(), 8);
  for (int64_t t = 1; t <= 101; ++t) {
    EXPECT_EQ(learning_rate(share, 0.3, t), learning_rate(steps, 0.3, t)) << t;
  }
  // It is enough for those that need a warm-up.
  EXPECT_EQ(schedule_message({.type = kInverseSqrt, .warmup_ratio = 0.1, .max_steps = 5}),
            "no error");
}

TEST(Schedule, ItsTurningPointsTellWhatItDoes) {
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(turning_points(complete(kConstant), 1), (Steps{1, 10}));
  EXPECT_EQ(turning_points(complete(kLinear), 1), (Steps{1, 10, 110}));
  EXPECT_EQ(turning_points(complete(kWarmupStableDecay), 1), (Steps{1, 10, 80, 110}));
  EXPECT_EQ(turning_points(complete(kWarmupStableDecay), 41), (Steps{41, 80, 110}));
  ScheduleOptions short_run = complete(kLinear);
  short_run.warmup_steps = 4000;
  EXPECT_EQ(turning_points(short_run, 1), (Steps{1, 110}));
}

TEST(Schedule, SurvivesAWarmupLongerThanTheRun) {
  ScheduleOptions options = complete(kLinear);
  options.warmup_steps = 4000;
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, 110), 110 / 4000.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, 4001), 0);
}

TEST(Schedule, RefusesImpossibleOptions) {
  for (const ScheduleType type : kScheduleTypes)
    EXPECT_EQ(schedule_message(complete(type)), "no error");
  for (const ScheduleType type : {kLinear, kCosine, kPolynomial}) {
    EXPECT_EQ(schedule_message({.type = type}),
              concat("[schedule] max_steps must be 1 or more for ", name_of(type), ", got 0."));
  }
  EXPECT_EQ(schedule_message({.type = kInverseSqrt}),
            "[schedule] warmup_steps must be 1 or more for inverse_sqrt, got 0.");
  EXPECT_EQ(schedule_message({.type = kNoam, .warmup_steps = 4000}),
            "[schedule] model_size must be 1 or more for noam, got 0.");
  EXPECT_EQ(schedule_message({.type = kStep}),
            "[schedule] step_size must be 1 or more for step, got 0.");
  EXPECT_EQ(schedule_message({.warmup_steps = -1}),
            "[schedule] warmup_steps must be 0 or more, got -1.");
  EXPECT_EQ(schedule_message({.min_learning_rate = 0.2}),
            "[schedule] min_learning_rate must not exceed learning_rate, got 0.2 and 0.1.");
  EXPECT_EQ(schedule_message({}, -1), "[schedule] learning_rate must be 0 or more, got -1.");
  EXPECT_EQ(schedule_message({}, NAN), "[schedule] learning_rate must be 0 or more, got nan.");
  EXPECT_THROW(learning_rate({}, 0.1, 0), Error);
  EXPECT_EQ(schedule_message({.warmup_steps = 3, .warmup_ratio = 0.1, .max_steps = 10}),
            "[schedule] warmup_ratio must be 0 beside warmup_steps, got 0.1 and 3.");
  EXPECT_EQ(schedule_message({.warmup_ratio = 0.1}),
            "[schedule] max_steps must be 1 or more for constant, got 0.");
  EXPECT_EQ(schedule_message({.warmup_ratio = 1.5, .max_steps = 10}),
            "[schedule] warmup_ratio must be in [0, 1], got 1.5.");
  EXPECT_EQ(schedule_message(
                {.type = kLinear, .max_steps = 10, .min_learning_rate = 0.01, .min_ratio = 0.5}),
            "[schedule] min_ratio must be 0 beside min_learning_rate, got 0.5 and 0.01.");
  EXPECT_EQ(schedule_message({.type = kWarmupStableDecay, .warmup_steps = 5, .max_steps = 10}),
            "[schedule] decay_steps must be 1 or more for warmup_stable_decay, got 0.");
  EXPECT_EQ(schedule_message(
                {.type = kWarmupStableDecay, .warmup_steps = 5, .max_steps = 10, .decay_steps = 6}),
            "[schedule] decay_steps must be at most max_steps less the warm-up (warmup_steps, or "
            "warmup_ratio), got 6, 10 and 5.");
}

TEST(Schedule, EveryTypeHasItsName) {
  std::string names;
  for (const ScheduleType type : kScheduleTypes) names += concat(name_of(type), ' ');
  EXPECT_EQ(names,
            "constant linear cosine inverse_sqrt noam polynomial step exponential "
            "cosine_with_restarts warmup_stable_decay reduce_lr_on_plateau ");
  EXPECT_STREQ(name_of(ScheduleType::kStep), "step");
}

}  // namespace
}  // namespace tapestry
