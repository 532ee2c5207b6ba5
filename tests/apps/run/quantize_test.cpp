// Runs that learn for int8 or int4 (training.quantize).
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

class QuantizeTest : public testing::Test {
 protected:
  int train(const std::string& task, const std::string& run,
            const std::vector<std::string>& overrides) const {
    return folder_.train(task, run, overrides);
  }
  std::string translated(const std::string& run, const std::string& options) const {
    return folder_.output(concat("translate --model ", run, " --beam-size 1 ", options),
                          read_file(folder_.path("valid.src")));
  }

  TinyRunFolder folder_{"quantize"};
};

TEST_F(QuantizeTest, ResumesToTheSameBitsOnAnyThreads) {
  const std::vector<std::vector<std::string>> runs = {{"clm", "int8", "dtype=bfloat16"},
                                                      {"translation", "int8", "dtype=float32"},
                                                      {"mlm", "int4", "dtype=float32"}};
  for (const std::vector<std::string>& run : runs) {
    const std::string &task = run[0], name = task + run[1];
    SCOPED_TRACE(name);
    const auto options = [&](std::vector<std::string> own) {
      own.insert(own.end(), {"training.quantize=" + run[1], run[2]});
      return own;
    };
    ASSERT_EQ(train(task, name + "-whole", options({"threads=1"})), 0) << folder_.messages();
    ASSERT_EQ(train(task, name + "-parts", options({"training.max_steps=33", "threads=2"})), 0)
        << folder_.messages();
    ASSERT_EQ(train(task, name + "-parts", options({"threads=1"})), 0) << folder_.messages();
    expect_equal(folder_.result(name + "-whole"), folder_.result(name + "-parts"));
  }
}

// What validations measured is what the commands give, unless they are asked for another format.
TEST_F(QuantizeTest, AnswersAreThoseThatValidationsSaw) {
  const std::vector<std::string> longer = {"training.learning_rate=0.01", "dtype=float32"};
  ASSERT_EQ(train("translation", "plain", longer), 0) << folder_.messages();
  std::vector<std::string> learns = longer;
  learns.emplace_back("training.quantize=int4");
  ASSERT_EQ(train("translation", "run", learns), 0) << folder_.messages();
  EXPECT_EQ(translated("run", ""), translated("run", "--weights int4"));
  EXPECT_EQ(translated("plain", ""), translated("plain", "--weights float32"));
  const auto scores = [&](const std::string& options) {
    return folder_.output("score --model run --source valid.src --target valid.tgt " + options);
  };
  EXPECT_EQ(scores(""), scores("--weights int4"));
  EXPECT_NE(scores(""), scores("--weights float32"));
  double validated = 0;
  for (const nlohmann::json& line : folder_.metrics("run")) {
    if (line.at("kind") == "valid") validated = line.at("nll");
  }
  const auto evaluated =
      nlohmann::json::parse(folder_.output("evaluate --model run/last --data valid --json"));
  EXPECT_NEAR(evaluated.at("nll").get<double>(), validated, 1e-5);
}

TEST_F(QuantizeTest, WhatItCannotDoIsSaidBeforeItBegins) {
  EXPECT_EQ(train("clm", "run", {"training.quantize=int3"}), 2);
  EXPECT_THAT(folder_.messages(), HasSubstr("none, int8, int4"));
  EXPECT_EQ(
      train("clm", "run", {"training.quantize=int8", "training.lora={rank: 2, target: [\"*\"]}"}),
      2);
  EXPECT_THAT(folder_.messages(),
              HasSubstr("'training.quantize' does not go with training.lora, got int8."));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run")));
}

}  // namespace
}  // namespace tapestry
