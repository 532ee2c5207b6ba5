#include "apps/run/trainer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

TrainerState some_state() {
  TrainerState state;
  state.step = 40;
  state.position = {2, 3};
  state.best_metric = -1.5;
  state.best_step = 30;
  state.skipped_updates = 2;
  state.seconds = 1.25;
  state.first_nll = 3.75;
  state.above_guess_in_a_row = 4;
  state.plateau.scale = 0.5;
  return state;
}

TEST(TrainerState, ReadsWhatItWrote) {
  const std::string json = to_json(some_state());
  EXPECT_EQ(to_json(parse_trainer_state(json, "file")), json);
}

TEST(TrainerState, WhatNoTrainingWritesIsNamed) {
  const std::pair<const char*, nlohmann::json> wrong[] = {{"step", 3.7},
                                                          {"step", -1},
                                                          {"step", 1e30},
                                                          {"step", int64_t{1} << 62},
                                                          {"step", 29},  // before the best
                                                          {"epoch", INT64_MIN},
                                                          {"epoch", INT64_MAX},
                                                          {"batch", "3"},
                                                          {"seconds", 1e308},
                                                          {"seconds", -1},
                                                          {"best_step", 41},
                                                          {"skipped_updates", 41},
                                                          {"skipped_in_a_row", 3},
                                                          {"first_nll", -1},
                                                          {"parts", 0},
                                                          {"best_metric", nullptr}};
  for (const auto& [key, value] : wrong) {
    nlohmann::json json = nlohmann::json::parse(to_json(some_state()));
    json[key] = value;
    try {
      parse_trainer_state(json.dump(), "file");
      ADD_FAILURE() << key << ' ' << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      const std::string named = std::string(key) == "step" && value == 29 ? "best_step" : key;
      EXPECT_THAT(error.what(), HasSubstr("[checkpoint] file: " + named + " must be "));
    }
  }
}

}  // namespace
}  // namespace tapestry
