// Training end to end through the binary: the same bits whatever interrupts a run, however many
// threads compute it, for every kind of task.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "core/precision.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

void sleep_milliseconds(int64_t count) {
  std::this_thread::sleep_for(std::chrono::milliseconds(count));
}

// Long enough to be killed or stopped several times; under the sanitizers fewer updates take as
// long.
#ifdef __SANITIZE_ADDRESS__
const char* const kLongRun = "training.max_steps=150";
#else
const char* const kLongRun = "training.max_steps=500";
#endif

// A folder whose "run" is the experiment as it is. It is trained once for all tests of a process
// that compare with it.
const TinyRunFolder& plain(const std::string& task) {
  static std::map<std::string, std::unique_ptr<TinyRunFolder>> folders;
  std::unique_ptr<TinyRunFolder>& folder = folders[task];
  if (folder == nullptr) {
    folder = std::make_unique<TinyRunFolder>("plain-" + task);
    EXPECT_EQ(folder->train(task, "run"), 0) << folder->messages();
  }
  return *folder;
}

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
  EXPECT_EQ(files.contains("tokenizer.model"), has_tokenizer(GetParam()));
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
      {"images", " 'data.image={height: 8, width: 8, channels: 1}'"}};
  const std::string data = found.contains(GetParam()) ? found.at(GetParam()) : "";
  EXPECT_EQ(parameters(folder_.output(concat("inspect ", GetParam(), ".yaml", data))),
            parameters(text));
  // The first part of the flow of shapes reads the batch, the last one gives classes or words.
  const std::string shapes = folder_.output("inspect run --shapes");
  EXPECT_THAT(shapes, HasSubstr("\nshapes of a batch of B "));
  EXPECT_THAT(shapes, HasSubstr(" (B, "));
  const std::vector<std::string> lines = lines_of(shapes);
  const std::map<std::string, const char*> ends = {{"classification", "(B, 16) -> (B, 2)"},
                                                   {"images", "(B, 16) -> (B, 3)"},
                                                   {"clm", "(B, T, 16) -> (B, T, 40)"},
                                                   {"mlm", "(B, T, 16) -> (B, T, 40)"},
                                                   {"translation", "(B, T, 16) -> (B, T, 40)"}};
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

/// What is the same for every task is tested with translations.
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
  const pid_t child = start("run", {"training.gradient_accumulation_steps=60000"});
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
  if (!can_multiply_bfloat16()) {
    EXPECT_EQ(train("run", {"dtype=bfloat16"}), 2);
    EXPECT_THAT(messages(), HasSubstr("dtype: bfloat16 needs a processor with AVX512-BF16"));
    GTEST_SKIP() << "this processor has no AVX512-BF16";
  }
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
