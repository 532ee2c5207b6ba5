// training.guided_alignment: the attention learns the alignment it is given, on any threads and
// ranks and over a kill with the same bits, and a file that does not fit is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/apps/run/long_run.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class GuidedAlignmentRun : public testing::Test {
 protected:
  // The target has the words of the source backwards.
  GuidedAlignmentRun() {
    for (const std::string name : {"train", "valid"}) {
      std::string all;
      for (const std::string& line : lines_of(read_file(folder_.path(name + ".src")))) {
        const auto words = 1 + std::ranges::count(line, ' ');
        for (int64_t i = 0; i < words; ++i) {
          all += concat(i > 0 ? " " : "", i, '-', words - 1 - i);
        }
        all += '\n';
      }
      folder_.write(name + ".align", all);
    }
  }
  static std::vector<std::string> guided(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"training.guided_alignment={file: train.align, weight: 0.5}",
                               "training.max_steps=20", "training.save_steps=3"});
    return more;
  }
  int train(const std::string& run, const std::vector<std::string>& overrides) const {
    return folder_.train("translation", run, overrides);
  }
  std::string refusal(const std::vector<std::string>& overrides, int code) const {
    folder_.forget_messages();
    EXPECT_EQ(train("refused", overrides), code) << messages();
    EXPECT_FALSE(fs::exists(folder_.path("refused/last")));
    return messages();
  }
  std::string messages() const { return folder_.messages(); }
  double error_rate(const std::string& run, const std::string& more = "") const {
    const std::string json = folder_.output(
        concat("evaluate --model ", run, " --data valid --alignment valid.align --json ", more));
    return nlohmann::json::parse(json).at("alignment_error");
  }

  TinyRunFolder folder_{"guided"};
};

TEST_F(GuidedAlignmentRun, LearnsTheAlignmentAndTranslateShowsIt) {
  const std::vector<std::string> size = {"training.max_steps=500", "model.hidden_size=32",
                                         "model.decoder_layers=2", "training.learning_rate=3e-3",
                                         "training.ema_decay=0"};
  ASSERT_EQ(train("plain", size), 0) << messages();
  std::vector<std::string> with = guided({"training.guided_alignment.weight=2"});
  with.insert(with.end(), size.begin(), size.end());
  ASSERT_EQ(train("guided", with), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("  alignment "));
  const double without = error_rate("plain"), of_head = error_rate("guided");
  EXPECT_LT(of_head, 10);
  EXPECT_GT(without, of_head + 30);
  EXPECT_GT(error_rate("guided", "--alignment-layer 2"), of_head + 10);  // another layer
  std::vector<double> losses;
  for (const nlohmann::json& line : folder_.metrics("guided")) {
    if (line.contains("alignment_loss")) losses.push_back(line["alignment_loss"]);
  }
  ASSERT_GT(losses.size(), 5u);
  // A word has two tokens as a rule: their shares alone have an entropy of about log 2.
  EXPECT_LT(losses.back(), losses.front() / 2);
  // A forced translation is aligned backwards.
  EXPECT_THAT(folder_.output("translate --model guided --prefix-column --alignments -",
                             "ba ce di\tdi ce ba\n"),
              HasSubstr("||| 0-2 1-1 "));
}

TEST_F(GuidedAlignmentRun, SurvivesAKillOnOtherThreads) {
  ASSERT_EQ(train("whole", guided()), 0) << messages();
  ASSERT_EQ(train("alone", {"training.max_steps=20", "training.save_steps=3"}), 0) << messages();
  EXPECT_NE(folder_.result("alone").at("model.safetensors"),
            folder_.result("whole").at("model.safetensors"));
  const pid_t killed = folder_.start("translation", "killed", guided());
  while (!fs::exists(folder_.path("killed/last"))) sleep_milliseconds(1);
  kill(killed, SIGKILL);
  TinyRunFolder::wait(killed);
  ASSERT_EQ(train("killed", guided({"threads=2"})), 0) << messages();
  expect_equal(folder_.result("whole"), folder_.result("killed"));
}

// As is the layer's memory where the others are recomputed.
TEST_F(GuidedAlignmentRun, RecomputingIsTheSameUpdate) {
  const std::string deep = "model.decoder_layers=3";
  ASSERT_EQ(train("kept", guided({deep})), 0) << messages();
  ASSERT_EQ(train("recomputed", guided({deep, "training.recompute=true"})), 0) << messages();
  EXPECT_EQ(folder_.result("kept").at("model.safetensors"),
            folder_.result("recomputed").at("model.safetensors"));
}

TEST_F(GuidedAlignmentRun, RanksAreTheSameUpdates) {
  for (const int ranks : {1, 2}) {
    const auto outcome = folder_.run_ranks(
        ranks, concat("train translation.yaml training.guided_alignment.file=train.align "
                      "training.max_steps=6 training.gradient_accumulation_steps=2 "
                      "distributed.parts=2 training.logging_steps=1 output_dir=of-",
                      ranks));
    if (ranks == 2 && outcome.err.find("mpirun: not found") != std::string::npos) GTEST_SKIP();
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_EQ(folder_.result("of-1").at("model.safetensors"),
            folder_.result("of-2").at("model.safetensors"));
  const auto one = folder_.metrics("of-1"), two = folder_.metrics("of-2");
  EXPECT_GT(one.at(0).at("alignment_loss"), 0);
  EXPECT_EQ(one.at(0).at("alignment_loss"), two.at(0).at("alignment_loss"));
}

// Parts of a batch are the same update, but for rounding, where nothing is drawn; and so it is with
// a teacher and in R-Drop, whose two passes are then equal.
TEST_F(GuidedAlignmentRun, PartsAndPassesAreTheSameLoss) {
  const std::vector<std::string> still = {"model.dropout=0", "model.attention_dropout=0",
                                          "training.max_steps=1", "training.logging_steps=1"};
  const std::string teacher = "training.teacher=" + plain("translation").path("run");
  ASSERT_EQ(train("whole", guided(still)), 0) << messages();
  const std::map<std::string, std::vector<std::string>> others = {
      {"parts", {"training.splits=3"}},
      {"taught", {teacher}},
      {"passes", {"training.r_drop=5", "model.dropout=1e-9"}},
      {"mixed", {"dtype=bfloat16"}}};
  const double whole = folder_.metrics("whole").at(0).at("alignment_loss");
  for (const auto& [run, overrides] : others) {
    std::vector<std::string> all = guided(still);
    all.insert(all.end(), overrides.begin(), overrides.end());
    ASSERT_EQ(train(run, all), 0) << messages();
    EXPECT_NEAR(folder_.metrics(run).at(0).at("alignment_loss"), whole,
                run == "mixed" ? 0.05 * whole : 1e-4 * whole)
        << run;
  }
}

TEST_F(GuidedAlignmentRun, PlanAndBenchKnowIt) {
  const std::string guide = " training.guided_alignment.file=train.align";
  EXPECT_EQ(folder_.run("plan translation.yaml" + guide).code, 0);
  EXPECT_THAT(
      folder_.output("bench translation.yaml --steps 1 --warmup-steps 0 --shape 2x8x8" + guide),
      HasSubstr("tokens_per_s"));
}

TEST_F(GuidedAlignmentRun, FilesThatDoNotFitAreRefused) {
  const auto of_file = [&](const std::string& text) {
    folder_.write("bad.align", text);
    return refusal({"training.guided_alignment.file=bad.align"}, 3);
  };
  EXPECT_THAT(of_file("0-0\n"), HasSubstr("bad.align has 1."));
  EXPECT_THAT(of_file("0-0\n0-99\n"), HasSubstr("bad.align:2 has the link 0-99"));
  EXPECT_THAT(of_file("0-0\nnone\n"), HasSubstr("bad.align:2 must have pairs i-j"));
  EXPECT_THAT(refusal(guided({"training.guided_alignment.layer=2"}), 2),
              HasSubstr("'training.guided_alignment.layer' must be at most 1, the model's "
                        "decoder_layers, got 2"));
  EXPECT_THAT(refusal(guided({"data.train=[{source: train.src, target: train.tgt}, {source: "
                              "valid.src, target: valid.tgt}]"}),
                      2),
              HasSubstr("belongs to one corpus, got 2 in data.train"));
  EXPECT_THAT(refusal(guided({"model={type: rnn_attention, hidden_size: 16}"}), 2),
              HasSubstr("is for model.type: encoder_decoder, got rnn_attention"));
  EXPECT_THAT(refusal(guided({"tokenizer.sampling={source: {alpha: 0.1}}"}), 2),
              HasSubstr("does not go with tokenizer.sampling"));
  EXPECT_THAT(refusal({"training.guided_alignment.weight=0.2"}, 2),
              HasSubstr("'training.guided_alignment.weight' has no effect without file"));
}

}  // namespace
}  // namespace tapestry
