// Training end to end through the binary: the same bits whatever interrupts a run, however many
// threads compute it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "apps/checkpoint.h"
#include "core/error.h"
#include "core/philox.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

/// Sentences of made-up words; the translation says them backwards.
void write_corpus(const fs::path& folder, const std::string& name, int sentences, uint64_t seed) {
  static const char* const kWords[] = {"ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu"};
  std::ofstream source(folder / (name + ".src")), target(folder / (name + ".tgt"));
  for (int i = 0; i < sentences; ++i) {
    const PhiloxKey key{seed, static_cast<uint32_t>(i), 0};
    const int words = 2 + static_cast<int>(philox_below(key, 100, 5));
    std::string forwards, backwards;
    for (int w = 0; w < words; ++w) {
      const std::string word = kWords[philox_below(key, static_cast<uint64_t>(w), 10)];
      forwards += (w > 0 ? " " : "") + word;
      backwards = word + (w > 0 ? " " : "") + backwards;
    }
    source << forwards << '\n';
    target << backwards << '\n';
  }
}

// Dropout, accumulation, averages and several epochs: everything that a resumed run must get right.
const char* const kConfig = R"(task: translation
output_dir: run
threads: 1
data:
  train: {source: train.src, target: train.tgt}
  valid: {source: valid.src, target: valid.tgt}
  max_length: 32
tokenizer: {vocab_size: 40}
model:
  hidden_size: 16
  intermediate_size: 32
  num_attention_heads: 2
  encoder_layers: 1
  decoder_layers: 1
  dropout: 0.1
  attention_dropout: 0.1
training:
  batch_size: 128
  gradient_accumulation_steps: 2
  max_steps: 60
  learning_rate: 5e-3
  lr_scheduler_type: inverse_sqrt
  warmup_steps: 10
  label_smoothing: 0.1
  max_grad_norm: 1.0
  ema_decay: 0.9
  logging_steps: 5
  eval_steps: 20
  save_steps: 5
  metric_for_best_model: nll
generation: {num_beams: 2}
)";

class TrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = scratch() / concat("tapestry-training-", getpid(), "-", name);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write_corpus(folder_, "train", 200, 1);
    write_corpus(folder_, "valid", 20, 2);
    std::ofstream(folder_ / "c.yaml") << kConfig;
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Memory where there is such a folder: every save is flushed, and a disk takes its time for
  /// that.
  static fs::path scratch() {
    const fs::path memory = "/dev/shm";
    return access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Starts `tapestry train c.yaml output_dir=<run> <overrides>`; messages are appended to "err".
  pid_t start(const std::string& run, std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), {TAPESTRY_BINARY, "train", "c.yaml", "output_dir=" + run});
    std::vector<char*> argv;
    for (std::string& argument : overrides) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const int err = open(path("err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      if (chdir(folder_.c_str()) != 0 || dup2(err, STDERR_FILENO) < 0) _exit(99);
      execv(argv[0], argv.data());
      _exit(99);
    }
    return child;
  }

  static int wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  int train(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return wait(start(run, overrides));
  }

  /// stdout of `tapestry <arguments>`, which must succeed.
  std::string output(const std::string& arguments) const {
    const std::string command = concat("cd '", folder_.string(), "' && '", TAPESTRY_BINARY, "' ",
                                       arguments, " >out 2>>err");
    EXPECT_EQ(std::system(command.c_str()), 0) << arguments << '\n' << messages();
    return read_file(path("out"));
  }

  std::string messages() const { return read_file(path("err")); }

  /// What two equal runs must agree on: every file of the last checkpoint, but for time and names.
  CheckpointFiles result(const std::string& run) const {
    CheckpointFiles files = read_checkpoint(path(run) + "/last");
    Json state = Json::parse(files.at("trainer_state.json"));
    state.erase("seconds");
    files["trainer_state.json"] = state.dump();
    files.erase("config.json");
    return files;
  }

  /// The lines of metrics.jsonl without what depends on the clock, the past or the memory.
  std::vector<std::string> metrics(const std::string& run) const {
    std::ifstream in(path(run) + "/metrics.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
      Json entry = Json::parse(line);
      for (const char* key : {"seconds", "tokens_per_s", "peak_bytes"}) entry.erase(key);
      lines.push_back(entry.dump());
    }
    return lines;
  }

  fs::path folder_;
};

void expect_equal(const CheckpointFiles& a, const CheckpointFiles& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, bytes] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(bytes == b.at(name)) << name << " differs";
  }
}

TEST_F(TrainingTest, LearnsAndLeavesACompleteRunFolder) {
  ASSERT_EQ(train("run"), 0) << messages();
  for (const char* file : {"config.yaml", "train.log", "metrics.jsonl", "best", "last"}) {
    EXPECT_TRUE(fs::exists(path("run") + "/" + file)) << file;
  }
  const CheckpointFiles files = read_checkpoint(path("run") + "/last");
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.model",
                           "optimizer.safetensors", "trainer_state.json"}) {
    EXPECT_TRUE(files.contains(file)) << file;
  }
  const std::vector<std::string> lines = metrics("run");
  ASSERT_EQ(lines.size(), 12u + 3u);
  const Json first = Json::parse(lines.front()), last = Json::parse(lines[13]);
  ASSERT_EQ(last["kind"], "train");
  EXPECT_LT(last["nll"].get<double>(), 0.8 * first["nll"].get<double>());
}

TEST_F(TrainingTest, OneAndTwoThreadsGiveTheSameBits) {
  ASSERT_EQ(train("one"), 0) << messages();
  ASSERT_EQ(train("two", {"threads=2"}), 0) << messages();
  expect_equal(result("one"), result("two"));
  EXPECT_EQ(metrics("one"), metrics("two"));
}

TEST_F(TrainingTest, AnotherSeedGivesOtherBits) {
  ASSERT_EQ(train("one"), 0) << messages();
  ASSERT_EQ(train("two", {"seed=2"}), 0) << messages();
  EXPECT_NE(result("one").at("model.safetensors"), result("two").at("model.safetensors"));
}

TEST_F(TrainingTest, ResumingGivesTheSameBits) {
  ASSERT_EQ(train("whole"), 0) << messages();
  // 33 is neither a place of saving nor of validation, and stands in the middle of an epoch.
  ASSERT_EQ(train("parts", {"training.max_steps=33"}), 0) << messages();
  ASSERT_EQ(train("parts"), 0) << messages();
  expect_equal(result("whole"), result("parts"));
}

TEST_F(TrainingTest, KilledAtAnyMomentItResumesToTheSameBits) {
  const std::vector<std::string> longer = {"training.max_steps=400"};
  ASSERT_EQ(train("whole", longer), 0) << messages();
  int kills = 0;
  for (int milliseconds = 20;; milliseconds = (milliseconds * 7) % 200 + 30) {
    const pid_t child = start("killed", longer);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    // After some kills it may finish, however slow the machine.
    if (kills < 12) kill(child, SIGKILL);
    const int code = wait(child);
    if (code == 0) break;
    ASSERT_EQ(code, 1000 + SIGKILL) << messages();
    ++kills;
  }
  expect_equal(result("whole"), result("killed"));
  EXPECT_EQ(metrics("whole"), metrics("killed"));
}

TEST_F(TrainingTest, SignalsSaveAndTheRunGoesOn) {
  const std::vector<std::string> overrides = {"training.max_steps=500", "training.eval_steps=0",
                                              "training.save_steps=100"};
  ASSERT_EQ(train("whole", overrides), 0) << messages();
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string run = concat("signal-", signal);
    const pid_t child = start(run, overrides);
    while (!fs::exists(path(run) + "/last"))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(child, signal);
    ASSERT_EQ(wait(child), 128 + signal) << messages();
    ASSERT_EQ(train(run, overrides), 0) << messages();
    expect_equal(result("whole"), result(run));
  }
}

TEST_F(TrainingTest, ASecondTrainingInTheSameFolderIsRefused) {
  const pid_t first = start("run", {"training.max_steps=100000"});
  while (!fs::exists(path("run") + "/last"))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(train("run"), 2);
  EXPECT_THAT(messages(), HasSubstr("error: [run] another training is running in "));
  kill(first, SIGKILL);
  wait(first);
}

TEST_F(TrainingTest, ResumeNeverOverwritesNothing) {
  ASSERT_EQ(train("run"), 0) << messages();
  const CheckpointFiles before = result("run");
  EXPECT_EQ(train("run", {"--resume", "never"}), 2);
  expect_equal(before, result("run"));
}

TEST_F(TrainingTest, ADamagedCheckpointIsPassedOver) {
  ASSERT_EQ(train("whole"), 0) << messages();
  ASSERT_EQ(train("run", {"training.max_steps=40"}), 0) << messages();
  std::ofstream(path("run") + "/checkpoint-40/model.safetensors") << "garbage";
  ASSERT_EQ(train("run"), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("checkpoint-40 is passed over: "));
  expect_equal(result("whole"), result("run"));
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

TEST_F(TrainingTest, InspectShowsACheckpoint) {
  ASSERT_EQ(train("run", {"training.max_steps=5"}), 0) << messages();
  const std::string text = output("inspect run");
  EXPECT_THAT(text, HasSubstr("\n  hidden_size: 16\n"));
  EXPECT_THAT(text, HasSubstr("tokenizer: 40 pieces, shared"));
  EXPECT_THAT(text, HasSubstr("decoder.layers.0.cross_attention.kv.weight               (32, 16)"));
  EXPECT_THAT(text, HasSubstr(" parameters in 33 tensors, float32"));
  // The config says as much about the model before there is one.
  const auto parameters = [](const std::string& all) { return all.substr(all.rfind("\n\n")); };
  EXPECT_EQ(parameters(output("inspect c.yaml")), parameters(text));
}

TEST_F(TrainingTest, ScoreGivesOneLineAPair) {
  ASSERT_EQ(train("run"), 0) << messages();
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
  const std::string lines = output("translate --model mean <valid.src");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 20);
  // The average of a model with itself is that model.
  output("average run/last run/last run/last --output same");
  EXPECT_EQ(read_checkpoint(path("same")).at("model.safetensors"),
            read_checkpoint(path("run") + "/last").at("model.safetensors"));
}

TEST_F(TrainingTest, BenchWritesItsFigures) {
  output("bench c.yaml --shape 4x6x5 --steps 2 --warmup-steps 1 --json figures.json");
  const Json figures = Json::parse(read_file(path("figures.json")));
  EXPECT_GT(figures.at("tokens_per_s").get<double>(), 0);
}

TEST_F(TrainingTest, TranslationKeepsLinesAndOrder) {
  ASSERT_EQ(
      train("run", {"training.max_steps=400", "training.eval_steps=0", "training.save_steps=0"}), 0)
      << messages();
  std::ofstream(folder_ / "in") << "ba ce di\n\nfo\n   \ngu ha je ki lo mu ba ce\nfo";
  const auto translate = [&](const std::string& options) {
    std::istringstream out(output("translate --model run " + options + " <in"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(out, line);) lines.push_back(line);
    return lines;
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
