// Training end to end through the binary: what is the same for every task, with translations.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "apps/config/config.h"
#include "core/precision.h"
#include "tests/apps/run/long_run.h"
#include "tests/apps/tiny_runs.h"
#include "tests/environment_variable.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

class TrainingTest : public testing::Test {
 protected:
  pid_t start(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return folder_.start("translation", run, overrides);
  }
  int train(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return folder_.train("translation", run, overrides);
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string output(const std::string& arguments, const std::string& input = "") const {
    return folder_.output(arguments, input);
  }
  std::string messages() const { return folder_.messages(); }
  CheckpointFiles result(const std::string& run) const { return folder_.result(run); }
  static CheckpointFiles plain_result() { return plain("translation").result("run"); }

  TinyRunFolder folder_{"training"};
};

// Sampled pieces, word dropout and R-Drop: the same bits after a kill and on two threads.
TEST_F(TrainingTest, TextsThatVarySurviveAKill) {
  const std::vector<std::string> varied = {
      "tokenizer.sampling={source: {dropout: 0.3}, target: {dropout: 0.1}}",
      "training.word_dropout=0.1", "training.r_drop=3", "training.max_steps=20",
      "training.save_steps=3"};
  ASSERT_EQ(train("whole", varied), 0) << messages();
  EXPECT_NE(plain_result().at("model.safetensors"), result("whole").at("model.safetensors"));
  const pid_t killed = start("killed", varied);
  while (!fs::exists(path("killed/last"))) sleep_milliseconds(1);
  kill(killed, SIGKILL);
  TinyRunFolder::wait(killed);
  std::vector<std::string> two_threads = varied;
  two_threads.emplace_back("threads=2");
  ASSERT_EQ(train("killed", two_threads), 0) << messages();
  expect_equal(result("whole"), result("killed"));
}

TEST_F(TrainingTest, SamplingOfAUnigramModelNeedsAnAlpha) {
  const std::vector<std::string> unigram = {"tokenizer.algorithm=unigram", "training.max_steps=3"};
  std::vector<std::string> given = unigram;
  given.emplace_back("tokenizer.sampling={source: {alpha: 0.3, nbest: 4}}");
  ASSERT_EQ(train("unigram", given), 0) << messages();
  given.back() = "tokenizer.sampling={source: {dropout: 0.1}}";
  EXPECT_EQ(train("no", given), 2);
  EXPECT_THAT(messages(), HasSubstr("'tokenizer.sampling.source.dropout' needs a byte-pair"));
}

// A run keeps what it began with, whatever another machine would choose.
TEST_F(TrainingTest, AutoIsSettledWhenARunBegins) {
  const auto dtype_of = [&](const std::string& run) {
    const std::string yaml = read_file(path(run + "/config.yaml"));
    const size_t begin = yaml.find("\ndtype: ") + 8;
    return yaml.substr(begin, yaml.find('\n', begin) - begin);
  };
  const std::vector<std::string> few = {"dtype=auto", "training.max_steps=4"};
  ASSERT_EQ(train("here", few), 0) << messages();
  EXPECT_EQ(dtype_of("here"), bfloat16_is_faster(Device{}) ? "bfloat16" : "float32");
  {
    const EnvironmentVariable wide("TAPESTRY_BFLOAT16", "float32");
    ASSERT_EQ(train("wide", few), 0) << messages();
  }
  EXPECT_EQ(dtype_of("wide"), "float32");
  EXPECT_THAT(messages(), HasSubstr("dtype auto: float32, as this processor"));
  ASSERT_EQ(train("wide", {"dtype=auto", "training.max_steps=6"}), 0) << messages();
  EXPECT_EQ(dtype_of("wide"), "float32");
}

TEST_F(TrainingTest, AnotherSeedGivesOtherBits) {
  ASSERT_EQ(train("two", {"seed=2"}), 0) << messages();
  EXPECT_NE(plain_result().at("model.safetensors"), result("two").at("model.safetensors"));
}

// The mix itself is counted in data/mixture_test.cpp.
TEST_F(TrainingTest, WeightsOfCorporaSurviveAKill) {
  const std::vector<std::string> weighted = {
      "data.train=[{source: train.src, target: train.tgt, weight: 3}, {source: valid.src, target: "
      "valid.tgt, weight: 1}]",
      "training.max_steps=30", "training.save_steps=7"};
  ASSERT_EQ(train("whole", weighted), 0) << messages();
  const pid_t killed = start("killed", weighted);
  while (!fs::exists(path("killed/last"))) sleep_milliseconds(1);
  kill(killed, SIGKILL);
  TinyRunFolder::wait(killed);
  ASSERT_EQ(train("killed", weighted), 0) << messages();
  expect_equal(result("whole"), result("killed"));
  std::vector<std::string> two_threads = weighted;
  two_threads.emplace_back("threads=2");
  ASSERT_EQ(train("two", two_threads), 0) << messages();
  expect_equal(result("whole"), result("two"));
  ASSERT_EQ(train("even", {weighted[0].substr(0, weighted[0].find(", weight: 3")) +
                               ", weight: 1}, {source: valid.src, target: valid.tgt, weight: 1}]",
                           weighted[1], weighted[2]}),
            0)
      << messages();
  EXPECT_NE(result("whole").at("model.safetensors"), result("even").at("model.safetensors"));
}

TEST_F(TrainingTest, ASignalDoesNotWaitForTheEndOfAnUpdate) {
  const pid_t child = start("run", {"training.gradient_accumulation_steps=6000"});
  const auto log = [&] {
    return fs::exists(path("run/train.log")) ? read_file(path("run/train.log")) : "";
  };
  while (log().find("learning rate: ") == std::string::npos) sleep_milliseconds(1);
  kill(child, SIGTERM);
  EXPECT_EQ(TinyRunFolder::wait(child), 128 + SIGTERM) << messages();
  EXPECT_THAT(messages(), HasSubstr("stopped by SIGTERM after update 0; "));
}

TEST_F(TrainingTest, ADeadReaderOfTheLogEndsNothing) {
  const std::string command = concat("cd '", path("."), "' && '", tapestry_binary(),
                                     "' train translation.yaml training.max_steps=20 "
                                     "training.logging_steps=1 2>&1 | head -n 1 >first");
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(fs::exists(path("run/checkpoint-20")));
}

// Else the next files that are opened get their numbers, and the log its place in them.
TEST_F(TrainingTest, NothingIsWrittenIntoFilesInPlaceOfClosedStreams) {
  const std::string command = concat("cd '", path("."), "' && '", tapestry_binary(),
                                     "' train translation.yaml training.max_steps=5 <&- >&- 2>&-");
  std::system(command.c_str());  // its code is that of stdout, which it cannot write
  ASSERT_TRUE(fs::exists(path("run/checkpoint-5")));
  EXPECT_EQ(read_file(path("run/.lock")), "");
  EXPECT_EQ(folder_.metrics("run").size(), 2U);
}

TEST_F(TrainingTest, ASecondTrainingInTheSameFolderIsRefused) {
  const pid_t first = start("run", {"training.max_steps=100000"});
  while (!fs::exists(path("run") + "/last")) sleep_milliseconds(1);
  EXPECT_EQ(train("run"), 2);
  EXPECT_THAT(messages(), HasSubstr("error: [run] another training is running in "));
  kill(first, SIGKILL);
  TinyRunFolder::wait(first);
}

TEST_F(TrainingTest, ResumeNeverOverwritesNothing) {
  ASSERT_EQ(train("run", {"training.max_steps=5"}), 0) << messages();
  const CheckpointFiles before = result("run");
  EXPECT_EQ(train("run", {"--resume", "never"}), 2);
  expect_equal(before, result("run"));
}

TEST_F(TrainingTest, ARunGoesOnFromAnEarlierCheckpointInAnotherFolderOnly) {
  ASSERT_EQ(train("run", {"training.max_steps=20"}), 0) << messages();
  EXPECT_EQ(train("run", {"--resume", "run/checkpoint-15", "training.max_steps=30"}), 2);
  EXPECT_THAT(messages(), HasSubstr("holds a checkpoint of update 20, later than the 15 of "));
  ASSERT_EQ(train("other", {"--resume", "run/checkpoint-15", "training.max_steps=20"}), 0)
      << messages();
  expect_equal(result("run"), result("other"));
}

TEST_F(TrainingTest, WhatChangedSinceTheCheckpointIsTold) {
  ASSERT_EQ(train("run", {"training.max_steps=5"}), 0) << messages();
  ASSERT_EQ(train("run", {"training.max_steps=5"}), 0) << messages();
  EXPECT_THAT(messages(), testing::Not(HasSubstr("changed since")));
  ASSERT_EQ(train("run", {"training.max_steps=5", "training.learning_rate=1e-3"}), 0);
  EXPECT_THAT(messages(),
              HasSubstr("changed since the checkpoint: training.learning_rate 0.005 -> 0.001\n"));
  EXPECT_EQ(train("run", {"tokenizer.vocab_size=44"}), 2);
  EXPECT_THAT(messages(), HasSubstr("tokenizer.vocab_size is 44, the checkpoint's 40: a run keeps "
                                    "its tokenizer."));
  EXPECT_EQ(folder_.train("clm", "run", {}), 2);
  EXPECT_THAT(messages(), HasSubstr("the config's task is clm, the checkpoint's translation. "));
}

// Most of the time goes into validation here, and then the limit is passed in it.
TEST_F(TrainingTest, ATimeLimitSavesTheLastUpdate) {
  ASSERT_EQ(train("run", {"training.max_hours=1e-4", "training.eval_steps=1",
                          "training.save_steps=0", "training.max_steps=100000"}),
            0)
      << messages();
  const Json state = Json::parse(read_checkpoint(path("run/last")).at("trainer_state.json"));
  EXPECT_THAT(messages(), HasSubstr(concat("done: ", state["step"].get<int64_t>(), " updates")));
}

// An average over one update holds two elevenths of the beginning, not the decay's 0.9999.
TEST_F(TrainingTest, AveragesWarmUp) {
  const std::vector<std::string> once = {"training.max_steps=1", "training.ema_decay=0.9999"};
  std::vector<std::string> still = once;
  still.push_back("training.learning_rate=1e-30");
  ASSERT_EQ(train("moved", once), 0) << messages();
  ASSERT_EQ(train("still", still), 0) << messages();
  const auto tensors = [&](const std::string& run, const char* file) {
    return parse_safetensors(result(run).at(file), file);
  };
  const NamedTensors begin = tensors("still", "model.safetensors"),
                     average = tensors("moved", "model.safetensors");
  double moved = 0;
  for (const auto& [name, tensor] : tensors("moved", "optimizer.safetensors")) {
    for (size_t i = 0; i < average.size(); ++i) {
      if (name != "parameter/" + average[i].first) continue;
      const auto x = begin[i].second.to_vector<float>(), y = tensor.to_vector<float>(),
                 mean = average[i].second.to_vector<float>();
      for (size_t j = 0; j < x.size(); ++j) {
        EXPECT_NEAR(mean[j], (2 * x[j] + 9 * y[j]) / 11, 1e-6) << name;
        moved = std::max<double>(moved, std::abs(y[j] - x[j]));
      }
    }
  }
  EXPECT_GT(moved, 1e-4);
}

TEST_F(TrainingTest, AValidationThatIsNotFiniteIsNeitherBestNorSaved) {
  const std::vector<std::string> wild = {"training.max_steps=1", "training.learning_rate=1e30",
                                         "training.optimizer={name: sgd}",
                                         "training.max_grad_norm=0", "training.ema_decay=0"};
  ASSERT_EQ(train("run", wild), 4) << messages();
  EXPECT_THAT(messages(), HasSubstr("validation after update 1: "));
  EXPECT_THAT(messages(), testing::Not(HasSubstr("best so far")));
  EXPECT_FALSE(fs::exists(path("run") + "/best"));
  EXPECT_FALSE(fs::exists(path("run") + "/checkpoint-1"));
}

TEST_F(TrainingTest, ADamagedCheckpointIsPassedOver) {
  ASSERT_EQ(train("run", {"training.max_steps=40"}), 0) << messages();
  std::ofstream(path("run") + "/checkpoint-40/model.safetensors") << "garbage";
  ASSERT_EQ(train("run"), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("checkpoint-40 is passed over: "));
  expect_equal(plain_result(), result("run"));
}

TEST_F(TrainingTest, AChangedModelIsAClearErrorOnResume) {
  ASSERT_EQ(train("run", {"training.max_steps=5"}), 0) << messages();
  EXPECT_EQ(train("run", {"model.hidden_size=32"}), 3);
  EXPECT_THAT(messages(), HasSubstr("the model needs ("));
}

TEST_F(TrainingTest, DivergenceIsExitCodeFour) {
  EXPECT_EQ(train("run", {"training.learning_rate=1e30", "training.optimizer={name: sgd}",
                          "training.max_grad_norm=0"}),
            4);
  EXPECT_THAT(messages(), HasSubstr("error: [train] 10 updates in a row"));
}

TEST_F(TrainingTest, ScoreGivesOneLineAPair) {
  ASSERT_EQ(train("run", {"training.max_steps=5"}), 0) << messages();
  const std::string scores = output("score --model run --source valid.src --target valid.tgt");
  std::istringstream lines(scores);
  int count = 0;
  for (double log_probability = 0, tokens = 0; lines >> log_probability >> tokens; ++count) {
    EXPECT_LT(log_probability, 0);
    EXPECT_GE(tokens, 2);
  }
  EXPECT_EQ(count, 20);
  EXPECT_EQ(output("score --model run --source valid.src --target valid.tgt --threads 2"), scores);
}

TEST_F(TrainingTest, AveragedCheckpointsTranslate) {
  ASSERT_EQ(train("run", {"training.max_steps=20"}), 0) << messages();
  output("average run/checkpoint-15 run/checkpoint-20 --output mean");
  const std::string lines = output("translate --model mean", read_file(path("valid.src")));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 20);
  EXPECT_EQ(train("on", {"--resume", "mean"}), 3);
  EXPECT_THAT(messages(), HasSubstr("mean has no trainer_state.json: no training goes on"));
  output("average run/checkpoint-15 run/checkpoint-20 --output again/");
  EXPECT_EQ(read_checkpoint(path("again")).at("model.safetensors"),
            read_checkpoint(path("mean")).at("model.safetensors"));
  // The average of a model with itself is that model.
  output("average run/last run/last run/last --output same");
  EXPECT_EQ(read_checkpoint(path("same")).at("model.safetensors"),
            read_checkpoint(path("run") + "/last").at("model.safetensors"));
}

TEST_F(TrainingTest, RunningStatisticsOfBatchNormAreResumedAndAveraged) {
  const std::vector<std::string> batch_norm = {"model.norm=batchnorm", "training.max_steps=20"};
  ASSERT_EQ(train("whole", batch_norm), 0) << messages();
  ASSERT_EQ(train("parts", {"model.norm=batchnorm", "training.max_steps=7"}), 0) << messages();
  ASSERT_EQ(train("parts", batch_norm), 0) << messages();
  expect_equal(result("whole"), result("parts"));
  output("average whole/checkpoint-15 whole/checkpoint-20 --output mean");
  const auto tensors = [&](const std::string& folder) {
    return parse_safetensors(read_checkpoint(path(folder)).at("model.safetensors"), folder);
  };
  const NamedTensors a = tensors("whole/checkpoint-15"), b = tensors("whole/checkpoint-20"),
                     mean = tensors("mean");
  int statistics = 0;
  for (size_t i = 0; i < mean.size(); ++i) {
    if (mean[i].first.find("running_") == std::string::npos) continue;
    ++statistics;
    const auto x = a[i].second.to_vector<float>(), y = b[i].second.to_vector<float>(),
               m = mean[i].second.to_vector<float>();
    EXPECT_NE(x, y) << mean[i].first;
    for (size_t j = 0; j < m.size(); ++j) EXPECT_NEAR(m[j], (x[j] + y[j]) / 2, 1e-6);
  }
  EXPECT_EQ(statistics, 2 * 5);  // two norms in the encoder's layer, three in the decoder's
}

TEST_F(TrainingTest, Bfloat16GivesTheSameBitsForAnyThreadsAndAfterResuming) {
  ASSERT_EQ(train("whole", {"dtype=bfloat16"}), 0) << messages();
  ASSERT_EQ(train("parts", {"dtype=bfloat16", "threads=2", "training.max_steps=33"}), 0);
  ASSERT_EQ(train("parts", {"dtype=bfloat16", "threads=2"}), 0) << messages();
  expect_equal(result("whole"), result("parts"));
  const auto nll = [](const TinyRunFolder& folder, const std::string& run) {
    return folder.metrics(run).back().at("nll").get<double>();
  };
  const double rounded = nll(folder_, "whole"), full = nll(plain("translation"), "run");
  EXPECT_NE(rounded, full);
  EXPECT_NEAR(rounded, full, 0.05 * full);
}

TEST_F(TrainingTest, BenchWritesItsFigures) {
  output("bench translation.yaml --shape 4x6x5 --steps 2 --warmup-steps 1 --json figures.json");
  const Json figures = Json::parse(read_file(path("figures.json")));
  EXPECT_GT(figures.at("tokens_per_s").get<double>(), 0);
}

// Learned positions end: a longer line is cut, and the user hears by how much. Others go on.
TEST_F(TrainingTest, OnlyLearnedPositionsCutLines) {
  std::string line = "ba";
  for (int i = 0; i < 40; ++i) line += " ce di";
  for (const std::string positions : {"learned", "sinusoidal", "rope", "none"}) {
    ASSERT_EQ(train(positions, {"training.max_steps=1", "model.max_position_embeddings=32",
                                concat("model.position_embedding=", positions)}),
              0)
        << messages();
    const auto outcome = folder_.run(
        concat("translate --model ", positions, " --beam-size 1 --max-new-tokens 50"), line + "\n");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(lines_of(outcome.out).size(), 1u);
    const bool cut = outcome.err.find(" tokens is cut to its first 31.") != std::string::npos;
    EXPECT_EQ(cut, positions == "learned") << outcome.err;
    folder_.write("long", line + "\n");
    const auto scored =
        folder_.run(concat("score --model ", positions, " --source long --target long"));
    EXPECT_EQ(scored.code, 0) << scored.err;
    EXPECT_EQ(scored.err.find("1 pair is cut to 32 tokens a side.") != std::string::npos,
              positions == "learned")
        << scored.err;
  }
}

TEST_F(TrainingTest, TranslationKeepsLinesAndOrder) {
  ASSERT_EQ(
      train("run", {"training.max_steps=400", "training.eval_steps=0", "training.save_steps=0"}), 0)
      << messages();
  const auto translate = [&](const std::string& options) {
    return lines_of(output("translate --model run " + options,
                           "ba ce di\n\nfo\n   \ngu ha je ki lo mu ba ce\nfo"));
  };
  const std::vector<std::string> lines = translate("");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[1], "");
  EXPECT_EQ(lines[3], "");
  EXPECT_EQ(lines[2], lines[5]);
  EXPECT_NE(lines[0], "");
  EXPECT_EQ(translate("--batch-size 1"), lines);
  EXPECT_EQ(translate("--threads 2"), lines);
}

}  // namespace
}  // namespace tapestry
