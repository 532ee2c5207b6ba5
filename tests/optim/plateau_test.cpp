#include "optim/plateau.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "tests/optim/rate_fixture.h"

namespace tapestry {
namespace {

struct Setting {
  const char* name;
  PlateauOptions options;
  bool larger_is_better = false;
  double lowest = 0;
};

// Values of tests/fixtures/schedules.py: noise around a curve that gets flat.
TEST(Plateau, EqualsPyTorchs) {
  auto fixture = testing_optim::read_rates("tests/fixtures/schedules.txt");
  const Setting settings[] = {{"plateau_min", {.factor = 0.5, .patience = 3}},
                              {"plateau_max",
                               {.factor = 0.3, .patience = 2, .threshold = 0.01, .cooldown = 4},
                               /*larger_is_better=*/true},
                              {"plateau_abs",
                               {.factor = 0.5,
                                .patience = 1,
                                .threshold = 0.02,
                                .threshold_mode = ThresholdMode::kAbsolute,
                                .cooldown = 1},
                               /*larger_is_better=*/false,
                               /*lowest=*/0.03},
                              {"plateau_abs_max",
                               {.factor = 0.1,
                                .patience = 0,
                                .threshold = 0.02,
                                .threshold_mode = ThresholdMode::kAbsolute},
                               /*larger_is_better=*/true}};
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.name);
    const std::vector<double>& metrics = fixture[concat(setting.name, "_metric")];
    const std::vector<double>& rates = fixture[setting.name];
    ASSERT_EQ(metrics.size(), 100u);
    ASSERT_EQ(rates.size(), 100u);
    PlateauState state;
    double before = 0.2;
    for (size_t t = 0; t < metrics.size(); ++t) {
      const bool fell = observe(setting.options, metrics[t], setting.larger_is_better, 0.2,
                                setting.lowest, state);
      EXPECT_NEAR(0.2 * state.scale, rates[t], 1e-15 * rates[t]) << t;
      EXPECT_EQ(fell, rates[t] < before) << t;
      before = rates[t];
    }
  }
}

TEST(Plateau, WhatIsNoNumberIsNoBest) {
  const PlateauOptions options{.patience = 1};
  PlateauState state;
  EXPECT_FALSE(observe(options, NAN, false, 1, 0, state));
  EXPECT_FALSE(state.has_best);
  EXPECT_TRUE(observe(options, INFINITY, false, 1, 0, state));
  EXPECT_FALSE(observe(options, 3, false, 1, 0, state));
  EXPECT_EQ(state.best, 3);
}

TEST(Plateau, RefusesImpossibleOptions) {
  const auto message_of = [](const PlateauOptions& options) -> std::string {
    try {
      validate(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of({}), "no error");
  EXPECT_EQ(message_of({.factor = 1}), "[plateau] factor must be in (0, 1), got 1.");
  EXPECT_EQ(message_of({.patience = -1}), "[plateau] patience must be 0 or more, got -1.");
  EXPECT_EQ(message_of({.threshold = NAN}), "[plateau] threshold must be 0 or more, got nan.");
  EXPECT_EQ(message_of({.cooldown = -1}), "[plateau] cooldown must be 0 or more, got -1.");
}

}  // namespace
}  // namespace tapestry
