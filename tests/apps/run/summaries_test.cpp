// A translation task with a tokenizer of our own and ROUGE: what summaries are trained with.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

class SummariesTest : public testing::Test {
 protected:
  static std::vector<std::string> overrides(std::vector<std::string> more) {
    more.insert(more.begin(), {"tokenizer={type: bpe, vocab_size: 40}", "evaluation.rouge=true",
                               "training.metric_for_best_model=rouge_l", "training.max_steps=20",
                               "training.eval_steps=1"});
    return more;
  }
  TinyRunFolder folder_{"summaries"};
};

TEST_F(SummariesTest, ARunIsJudgedByRouge) {
  const auto trained = overrides({"training.eval_steps=0", "training.max_steps=150"});
  ASSERT_EQ(folder_.train("translation", "run", trained), 0) << folder_.messages();
  const nlohmann::json last = folder_.metrics("run").back();
  folder_.write("hypotheses", folder_.output("translate --model run --beam-size 1",
                                             read_file(folder_.path("valid.src"))));
  const auto json = nlohmann::json::parse(folder_.output(
      "evaluate --hypothesis hypotheses --reference valid.tgt --metrics rouge --json"));
  for (const char* name : {"rouge_1", "rouge_2", "rouge_l"}) {
    EXPECT_NEAR(last.at(name).get<double>(), json["rouge"][name]["f"].get<double>(), 1e-9) << name;
  }
  const auto state = nlohmann::json::parse(read_file(folder_.path("run/last/trainer_state.json")));
  EXPECT_GT(last.at("rouge_l").get<double>(), 5);
  EXPECT_NEAR(state.at("best_metric").get<double>(), last.at("rouge_l").get<double>(), 1e-9);
}

TEST_F(SummariesTest, ARunIsJudgedByAMetricAskedFor) {
  ASSERT_EQ(folder_.train("translation", "run",
                          {"training.max_steps=60", "evaluation.extra_metrics=[ter, chrf++]",
                           "training.metric_for_best_model=ter", "training.eval_steps=20"}),
            0)
      << folder_.messages();
  folder_.write("hypotheses", folder_.output("translate --model run/last --beam-size 1",
                                             read_file(folder_.path("valid.src"))));
  const auto json = nlohmann::json::parse(folder_.output(
      "evaluate --hypothesis hypotheses --reference valid.tgt --metrics ter,chrf++ --json"));
  double least = 1e9;  // of a rate of edits the smallest is the best
  for (const nlohmann::json& row : folder_.metrics("run")) {
    if (row.contains("ter")) least = std::min(least, row["ter"].get<double>());
  }
  const nlohmann::json last = folder_.metrics("run").back();
  EXPECT_NEAR(last.at("ter").get<double>(), json["ter"]["score"].get<double>(), 1e-9);
  EXPECT_NEAR(last.at("chrf++").get<double>(), json["chrf++"]["score"].get<double>(), 1e-9);
  const auto state = nlohmann::json::parse(read_file(folder_.path("run/last/trainer_state.json")));
  EXPECT_NEAR(state.at("best_metric").get<double>(), least, 1e-9);
}

TEST_F(SummariesTest, OurTokenizerTravelsWithARunThatIsResumed) {
  ASSERT_EQ(folder_.train("translation", "whole", overrides({})), 0) << folder_.messages();
  ASSERT_EQ(folder_.train("translation", "parts", overrides({"training.max_hours=1e-9"})), 0);
  ASSERT_EQ(folder_.train("translation", "parts", overrides({"threads=2"})), 0);
  CheckpointFiles whole = folder_.result("whole"), parts = folder_.result("parts");
  whole.erase("MANIFEST.json"), parts.erase("MANIFEST.json");
  expect_equal(whole, parts);
  EXPECT_TRUE(whole.at("target.txt").starts_with("tapestry bpe 2\nnormalization identity\n"));
}

}  // namespace
}  // namespace tapestry
