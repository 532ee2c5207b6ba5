#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <numbers>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using enum ScheduleType;

ScheduleOptions complete(ScheduleType type) {
  return {.type = type, .warmup_steps = 10, .max_steps = 110, .step_size = 20, .model_size = 512};
}

std::string message_of(const ScheduleOptions& options, double base = 0.1) {
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

TEST(Schedule, StepLevelsAreStepSizeUpdatesLong) {
  ScheduleOptions options = complete(kStep);
  options.gamma = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 30), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 31), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 50), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(options, 0.8, 51), 0.2);
}

TEST(Schedule, NeverFallsBelowTheMinimum) {
  for (const ScheduleType type : kScheduleTypes) {
    ScheduleOptions options = complete(type);
    options.min_learning_rate = 0.004;
    const double last = learning_rate(options, 0.3, 110),
                 later = learning_rate(options, 0.3, 100000);
    EXPECT_GE(last, 0.004) << name_of(type);
    if (type == kConstant) continue;
    EXPECT_DOUBLE_EQ(later, 0.004) << name_of(type);
    if (type == kLinear || type == kCosine || type == kPolynomial) {
      EXPECT_DOUBLE_EQ(last, 0.004) << name_of(type);
    }
  }
}

TEST(Schedule, EqualsPyTorchSchedulers) {
  std::map<std::string, std::vector<double>> fixture;
  std::ifstream file(project_file("tests/fixtures/optim_schedules.txt"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (double value; words >> value;) fixture[name].push_back(value);
  }
  const auto compare = [&](const std::string& name, const ScheduleOptions& options, int shift) {
    const std::vector<double>& expected = fixture[name];
    ASSERT_EQ(expected.size(), 20u) << name;
    for (int t = 1; t <= 20; ++t) {
      EXPECT_NEAR(learning_rate(options, 0.2, t + shift), expected[t - 1], 1e-15)
          << name << ' ' << t;
    }
  };
  compare("linear_warmup", {.type = kConstant, .warmup_steps = 10}, 0);
  compare("linear", {.type = kLinear, .max_steps = 20, .min_learning_rate = 0.05}, 0);
  compare("cosine", {.type = kCosine, .max_steps = 20, .min_learning_rate = 0.05}, 0);
  compare("polynomial", {.type = kPolynomial, .max_steps = 20, .power = 2}, 0);
  // After t calls of step() the next update is number t + 1: levels of step_size updates, as here.
  compare("step", {.type = kStep, .step_size = 4, .gamma = 0.5}, 1);
}

TEST(Schedule, SurvivesAWarmupLongerThanTheRun) {
  ScheduleOptions options = complete(kLinear);
  options.warmup_steps = 4000;
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, 110), 110 / 4000.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 1.0, 4001), 0);
}

TEST(Schedule, RefusesImpossibleOptions) {
  for (const ScheduleType type : kScheduleTypes) EXPECT_EQ(message_of(complete(type)), "no error");
  for (const ScheduleType type : {kLinear, kCosine, kPolynomial}) {
    EXPECT_EQ(message_of({.type = type}),
              concat("[schedule] max_steps must be 1 or more for ", name_of(type), ", got 0."));
  }
  EXPECT_EQ(message_of({.type = kInverseSqrt}),
            "[schedule] warmup_steps must be 1 or more for inverse_sqrt, got 0.");
  EXPECT_EQ(message_of({.type = kNoam, .warmup_steps = 4000}),
            "[schedule] model_size must be 1 or more for noam, got 0.");
  EXPECT_EQ(message_of({.type = kStep}), "[schedule] step_size must be 1 or more for step, got 0.");
  EXPECT_EQ(message_of({.warmup_steps = -1}), "[schedule] warmup_steps must be 0 or more, got -1.");
  EXPECT_EQ(message_of({.min_learning_rate = 0.2}),
            "[schedule] min_learning_rate must not exceed learning_rate, got 0.2 and 0.1.");
  EXPECT_EQ(message_of({}, -1), "[schedule] learning_rate must be 0 or more, got -1.");
  EXPECT_EQ(message_of({}, NAN), "[schedule] learning_rate must be 0 or more, got nan.");
  EXPECT_THROW(learning_rate({}, 0.1, 0), Error);
}

TEST(Schedule, EveryTypeHasItsName) {
  std::string names;
  for (const ScheduleType type : kScheduleTypes) names += concat(name_of(type), ' ');
  EXPECT_EQ(names, "constant linear cosine inverse_sqrt noam polynomial step ");
  EXPECT_STREQ(name_of(ScheduleType::kStep), "step");
}

}  // namespace
}  // namespace tapestry
