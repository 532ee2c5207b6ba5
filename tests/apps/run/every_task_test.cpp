// Training end to end through the binary: the same bits whatever interrupts a run, however many
// threads compute it, for every kind of task.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "tests/apps/run/long_run.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

class EveryTaskTest : public testing::TestWithParam<std::string> {
 protected:
  pid_t start(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return folder_.start(GetParam(), run, overrides);
  }
  int train(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return folder_.train(GetParam(), run, overrides);
  }
  static void expect_equal_runs(const TinyRunFolder& a, const std::string& of_a,
                                const TinyRunFolder& b, const std::string& of_b) {
    expect_equal(a.result(of_a), b.result(of_b));
    EXPECT_EQ(a.metrics(of_a), b.metrics(of_b));
    EXPECT_EQ(a.samples(of_a), b.samples(of_b));
  }
  void expect_plain(const std::string& run) const {
    expect_equal_runs(plain(GetParam()), "run", folder_, run);
  }

  TinyRunFolder folder_{"every-task"};
};

TEST_P(EveryTaskTest, LearnsAndLeavesACompleteRunFolder) {
  const TinyRunFolder& folder = plain(GetParam());
  for (const char* file : {"config.yaml", "train.log", "metrics.jsonl", "samples.jsonl",
                           "starts.jsonl", "report.html", "best", "last"}) {
    EXPECT_TRUE(fs::exists(folder.path("run") + "/" + file)) << file;
  }
  const CheckpointFiles files = read_checkpoint(folder.path("run/last"));
  for (const char* file :
       {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
    EXPECT_TRUE(files.contains(file)) << file;
  }
  EXPECT_EQ(files.contains("tokenizer.model") || files.contains("target.model"),
            has_tokenizer(GetParam()));
  const std::vector<Json> entries = folder.metrics("run");
  ASSERT_EQ(entries.size(), 12u + 3u);
  ASSERT_EQ(entries[13]["kind"], "train");
  EXPECT_LT(entries[13]["nll"].get<double>(), 0.8 * entries[0]["nll"].get<double>());
  ASSERT_EQ(entries[14]["kind"], "valid");
  EXPECT_GT(entries[14]["accuracy"].get<double>(), 0);
}

// The same examples at each validation, and what the model makes of them.
TEST_P(EveryTaskTest, ShowsExamplesOfTheValidation) {
  const TinyRunFolder& folder = plain(GetParam());
  EXPECT_EQ(folder.messages().find("no samples"), std::string::npos) << folder.messages();
  std::vector<Json> samples;
  std::set<std::string> kinds;
  for (const Json& line : folder.samples("run")) {
    kinds.insert(line.at("kind"));
    if (line["kind"] == "sample") samples.push_back(line);
  }
  ASSERT_EQ(samples.size(), 12u);  // four at three validations
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].at("step"), 20 * (1 + i / 4));
    EXPECT_EQ(samples[i].at("example"), i % 4);
    const char* const reference = samples[i].contains("class") ? "class" : "reference";
    EXPECT_NE(samples[i].at(reference), "");
    EXPECT_EQ(samples[i].at(reference), samples[i % 4].at(reference));
    EXPECT_TRUE(samples[i].at("output").is_string());
  }
  EXPECT_EQ(kinds.contains("lengths"), GetParam() == "translation");
  EXPECT_EQ(kinds.contains("confusion"), GetParam() == "images" || GetParam() == "classification");
  ASSERT_EQ(train("none", {"training.samples=0"}), 0) << folder_.messages();
  for (const Json& line : folder_.samples("none")) EXPECT_NE(line.at("kind"), "sample");
  // They change nothing else.
  expect_equal(folder.result("run"), folder_.result("none"));
}

TEST_P(EveryTaskTest, OneAndTwoThreadsGiveTheSameBits) {
  ASSERT_EQ(train("two", {"threads=2"}), 0) << folder_.messages();
  expect_plain("two");
}

// With parts of an update, whose gradients are summed in float32, and averages of the weights.
TEST_P(EveryTaskTest, MixedPrecisionResumesToTheSameBits) {
  const std::vector<std::string> mixed = {
      "dtype=bfloat16",      "training.ema_decay=0.9", "training.gradient_accumulation_steps=2",
      "distributed.parts=2", "training.max_steps=12",  "training.save_steps=6"};
  ASSERT_EQ(train("whole", mixed), 0) << folder_.messages();
  std::vector<std::string> half = mixed;
  half.push_back("training.max_steps=6");
  ASSERT_EQ(train("parts", half), 0) << folder_.messages();
  ASSERT_EQ(train("parts", mixed), 0) << folder_.messages();
  expect_equal(folder_.result("whole"), folder_.result("parts"));
}

// Muon with everything that it keeps: the same bits on two threads and after a resume, in float32
// and in mixed precision, whose masters it moves.
TEST_P(EveryTaskTest, MuonResumesToTheSameBits) {
  for (const std::string dtype : {"float32", "bfloat16"}) {
    const std::vector<std::string> muon = {
        "dtype=" + dtype,
        "training.optimizer={name: muon, normuon_beta2: 0.9, cautious_weight_decay: true}",
        "training.learning_rate=0.02",
        "training.ema_decay=0.9",
        "training.max_steps=12",
        "training.save_steps=6"};
    const auto run = [&](const std::string& name, const std::string& more) {
      std::vector<std::string> overrides = muon;
      overrides.push_back(more);
      ASSERT_EQ(train(name, overrides), 0) << folder_.messages();
    };
    run(dtype + "-whole", "threads=1");
    run(dtype + "-two", "threads=2");
    expect_equal(folder_.result(dtype + "-whole"), folder_.result(dtype + "-two"));
    run(dtype + "-parts", "training.max_steps=6");
    run(dtype + "-parts", "threads=1");
    expect_equal(folder_.result(dtype + "-whole"), folder_.result(dtype + "-parts"));
  }
}

TEST_P(EveryTaskTest, RecomputedActivationsGiveTheSameBits) {
  ASSERT_EQ(train("again", {"training.recompute=true"}), 0) << folder_.messages();
  expect_plain("again");
}

TEST_P(EveryTaskTest, ResumingGivesTheSameBits) {
  // 33 is neither a place of saving nor of validation, and stands in the middle of an epoch.
  ASSERT_EQ(train("parts", {"training.max_steps=33"}), 0) << folder_.messages();
  ASSERT_EQ(train("parts"), 0) << folder_.messages();
  expect_equal(plain(GetParam()).result("run"), folder_.result("parts"));
}

TEST_P(EveryTaskTest, KilledAtAnyMomentItResumesToTheSameBits) {
  const std::vector<std::string> longer = {kLongRun};
  ASSERT_EQ(train("whole", longer), 0) << folder_.messages();
  const PhiloxKey moments{std::hash<std::string>()(GetParam()), 0, 0};
  uint64_t kills = 0;
  for (;;) {
    const pid_t child = start("killed", longer);
    sleep_milliseconds(10 + static_cast<int64_t>(philox_below(moments, kills, 120)));
    // After some kills it may finish, however slow the machine.
    if (kills < 8) kill(child, SIGKILL);
    const int code = TinyRunFolder::wait(child);
    if (code == 0) break;
    ASSERT_EQ(code, 1000 + SIGKILL) << folder_.messages();
    ++kills;
  }
  EXPECT_GT(kills, 0u);
  expect_equal_runs(folder_, "whole", folder_, "killed");
}

TEST_P(EveryTaskTest, SignalsSaveAndTheRunGoesOn) {
  const std::vector<std::string> overrides = {kLongRun, "training.eval_steps=0",
                                              "training.save_steps=20"};
  ASSERT_EQ(train("whole", overrides), 0) << folder_.messages();
  const fs::path last = folder_.path("parts/last");
  fs::path saved;  // where `last` points
  for (const int signal : {SIGTERM, SIGINT}) {
    const pid_t child = start("parts", overrides);
    for (std::error_code none; saved == fs::read_symlink(last, none) || !fs::exists(last);) {
      sleep_milliseconds(1);
    }
    kill(child, signal);
    ASSERT_EQ(TinyRunFolder::wait(child), 128 + signal) << folder_.messages();
    saved = fs::read_symlink(last);
  }
  ASSERT_EQ(train("parts", overrides), 0) << folder_.messages();
  expect_equal(folder_.result("whole"), folder_.result("parts"));
}

TEST_P(EveryTaskTest, EpochsEndARunAndResumeToTheSameBits) {
  const std::vector<std::string> epochs = {"training.max_steps=0", "training.num_train_epochs=3.5",
                                           "training.lr_scheduler_type=linear",
                                           "training.warmup_steps=2"};
  ASSERT_EQ(train("whole", epochs), 0) << folder_.messages();
  const std::string said = folder_.messages();
  const size_t at = said.find("num_train_epochs 3.5, ");
  ASSERT_NE(at, std::string::npos) << said;
  long batches = 0, updates = 0;
  ASSERT_EQ(std::sscanf(said.c_str() + at,
                        "num_train_epochs 3.5, %ld batches in the first: the run ends after update "
                        "%ld",
                        &batches, &updates),
            2);
  EXPECT_GT(batches, 4);
  EXPECT_EQ(updates, (7 * batches + 3) / 4) << "two batches an update";
  const Json state = Json::parse(read_file(folder_.path("whole/last/trainer_state.json")));
  EXPECT_EQ(state.at("step"), updates);
  EXPECT_EQ(state.at("epoch"), 3);
  // The schedule ends there, too.
  const std::vector<Json> entries = folder_.metrics("whole");
  EXPECT_EQ(entries.at(entries.size() - 2).at("learning_rate"), 0);
  // A run that stops after its first update goes on to the same end.
  std::vector<std::string> stopped = epochs;
  stopped.push_back("training.max_hours=1e-9");
  ASSERT_EQ(train("parts", stopped), 0) << folder_.messages();
  EXPECT_EQ(Json::parse(read_file(folder_.path("parts/last/trainer_state.json"))).at("step"), 1);
  ASSERT_EQ(train("parts", epochs), 0) << folder_.messages();
  const auto weights = [&](const char* run) {
    return read_file(folder_.path(concat(run, "/last/model.safetensors")));
  };
  EXPECT_TRUE(weights("whole") == weights("parts"));
}

TEST_P(EveryTaskTest, InspectShowsTheModelBeforeAndAfterTraining) {
  ASSERT_EQ(train("run", {"training.max_steps=2"}), 0) << folder_.messages();
  const std::string text = folder_.output("inspect run");
  const std::string task = kTinyTasks.at(GetParam());
  EXPECT_THAT(text, HasSubstr(concat('\n', task.substr(0, task.find('\n') + 1))));
  EXPECT_THAT(text, HasSubstr("\n  hidden_size: 16\n"));
  EXPECT_EQ(text.find(", shared; the first: <pad> <unk> <s> </s>") != std::string::npos,
            has_tokenizer(GetParam()));
  // The config says as much about the model before there is one.
  const auto parameters = [](const std::string& all) { return all.substr(all.rfind("\n\n")); };
  const std::map<std::string, std::string> found = {
      {"classification", " data.labels=[early,late]"},
      {"tokens", " data.labels=[B-X,B-Y,I-X,O]"},
      {"several", " data.labels=[ba,ce,mu]"},
      {"images", " 'data.image={height: 8, width: 8, channels: 1}'"}};
  const std::string data = found.contains(GetParam()) ? found.at(GetParam()) : "";
  EXPECT_EQ(parameters(folder_.output(concat("inspect ", GetParam(), ".yaml", data))),
            parameters(text));
  // The first part of the flow of shapes reads the batch, the last one gives classes or words.
  const std::string shapes = folder_.output("inspect run --shapes");
  EXPECT_THAT(shapes, HasSubstr("\nshapes of a batch of B "));
  EXPECT_THAT(shapes, HasSubstr(" (B, "));
  const std::vector<std::string> lines = lines_of(shapes);
  const std::map<std::string, const char*> ends = {
      {"classification", "(B, 16) -> (B, 2)"}, {"tokens", "(B, T, 16) -> (B, T, 4)"},
      {"images", "(B, 16) -> (B, 3)"},         {"clm", "(B, T, 16) -> (B, T, 40)"},
      {"mlm", "(B, T, 16) -> (B, T, 40)"},     {"translation", "(B, T, 16) -> (B, T, 40)"}};
  if (ends.contains(GetParam())) {
    EXPECT_THAT(lines.back(), testing::EndsWith(ends.at(GetParam()))) << shapes;
  }
}

TEST_P(EveryTaskTest, BenchTimesTheConfigsData) {
  folder_.output(concat("bench ", GetParam(), ".yaml --steps 2 --warmup-steps 1 --json figures"));
  const Json figures = Json::parse(read_file(folder_.path("figures")));
  EXPECT_GT(figures.at("tokens_per_s").get<double>(), 0);
}

TEST_P(EveryTaskTest, ASecondStartTakesTheTokensOfTheFirst) {
  const bool texts = GetParam() != "images" && GetParam() != "regression";
  const std::vector<std::string> shared = {"training.max_steps=2"};
  std::vector<std::string> with = shared, without = shared;
  if (texts) {
    with.push_back(concat("data.cache_dir=", folder_.path("tokens")));
    without.emplace_back("data.cache=false");
  }
  ASSERT_EQ(train("first", with), 0) << folder_.messages();
  EXPECT_EQ(fs::exists(folder_.path("tokens")), texts);
  std::map<std::string, fs::file_time_type> written;
  if (texts) {
    for (const auto& file : fs::directory_iterator(folder_.path("tokens"))) {
      written[file.path()] = file.last_write_time();
    }
    EXPECT_EQ(written.size(), 3U);  // the tokenizer, the training set, the validation set
  }
  ASSERT_EQ(train("second", with), 0) << folder_.messages();
  for (const auto& [file, time] : written) EXPECT_EQ(fs::last_write_time(file), time) << file;
  ASSERT_EQ(train("without", without), 0) << folder_.messages();
  EXPECT_FALSE(fs::exists(folder_.path("without/tokens-train.bin")));
  expect_equal(folder_.result("first"), folder_.result("second"));
  expect_equal(folder_.result("first"), folder_.result("without"));
  ASSERT_EQ(train("own", shared), 0) << folder_.messages();
  EXPECT_EQ(fs::exists(folder_.path("own/tokens-train.bin")), texts);
  expect_equal(folder_.result("first"), folder_.result("own"));
}

std::vector<std::string> tiny_tasks() {
  std::vector<std::string> names;
  for (const auto& [name, config] : kTinyTasks) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, EveryTaskTest, testing::ValuesIn(tiny_tasks()),
                         [](const auto& info) { return info.param; });

/// Rows of blocks are told apart by their number alone: two batches of four are one of eight.
class BlocksTest : public EveryTaskTest {};

TEST_P(BlocksTest, AnAccumulatedGradientIsThatOfTheBigBatch) {
  const auto losses = [&](const std::string& run, const std::string& size,
                          const std::string& count) {
    EXPECT_EQ(train(run, {"training.batch_type=sentences", "training.batch_size=" + size,
                          "training.gradient_accumulation_steps=" + count, "training.max_steps=5",
                          "training.logging_steps=1", "training.warmup_steps=1",
                          "training.ema_decay=0", "model.dropout=0", "model.attention_dropout=0"}),
              0)
        << folder_.messages();
    return folder_.metrics(run);
  };
  const std::vector<Json> big = losses("big", "8", "1"), small = losses("small", "4", "2");
  ASSERT_EQ(big.size(), small.size());
  for (size_t i = 0; i < big.size(); ++i) {
    EXPECT_EQ(big[i]["step"], small[i]["step"]);
    for (const char* key : {"loss", "nll", "grad_norm"}) {
      if (!big[i].contains(key)) continue;
      const double value = big[i][key].get<double>();
      EXPECT_NEAR(small[i][key].get<double>(), value, 1e-4 * value) << key << " of entry " << i;
    }
  }
}

TEST_P(BlocksTest, TokensAreKeptInTheRunFolder) {
  fs::create_directories(folder_.path("run"));
  folder_.write("run/tokens-train.bin.tmp-123", "left by a process that was killed");
  ASSERT_EQ(train("run", {"training.max_steps=1"}), 0) << folder_.messages();
  EXPECT_THAT(folder_.messages(), testing::Not(HasSubstr("(cached)")));
  for (const char* file : {"run/tokens-train.bin", "run/tokens-valid.bin"}) {
    EXPECT_TRUE(fs::exists(folder_.path(file))) << file;
  }
  EXPECT_FALSE(fs::exists(folder_.path("run/tokens-train.bin.tmp-123")));
  folder_.forget_messages();
  ASSERT_EQ(train("run", {"training.max_steps=2"}), 0) << folder_.messages();
  EXPECT_THAT(folder_.messages(), HasSubstr(" tokens (cached); 200 read, 200 kept"));
  ASSERT_EQ(train("without", {"training.max_steps=2", "data.cache=false"}), 0);
  EXPECT_FALSE(fs::exists(folder_.path("without/tokens-train.bin")));
  EXPECT_EQ(folder_.result("without").at("model.safetensors"),
            folder_.result("run").at("model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(All, BlocksTest, testing::Values("clm", "mlm"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tapestry
