// Which files of a checkpoint are needed by whom, and what a training asks of one that it goes on
// from.
#include "apps/run/resume.h"

#include <gmock/gmock.h>

#include <limits>

#include "core/allocator.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ResumeTest : public testing::Test {
 protected:
  static void train(const TinyRunFolder& folder, const std::string& task, const std::string& run,
                    std::vector<std::string> overrides = {}) {
    overrides.insert(overrides.begin(), "training.max_steps=20");
    ASSERT_EQ(folder.train(task, run, overrides), 0) << folder.messages();
  }
  void train(const std::string& task, const std::string& run,
             const std::vector<std::string>& overrides = {}) const {
    train(folder_, task, run, overrides);
  }
  /// 20 updates in "run", which a process trains once for each experiment and copies then.
  void begin(const std::string& task) const {
    static std::map<std::string, std::unique_ptr<TinyRunFolder>> folders;
    std::unique_ptr<TinyRunFolder>& trained = folders[task];
    if (trained == nullptr) {
      trained = std::make_unique<TinyRunFolder>("trained-" + task);
      train(*trained, task, "run");
    }
    fs::remove_all(folder_.path("run"));
    fs::copy(trained->path("run"), folder_.path("run"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  /// Commits a checkpoint of `run` again with other files, so that its manifest verifies.
  void commit(const std::string& run, const std::function<void(CheckpointFiles&)>& change) const {
    const std::string folder = fs::canonical(folder_.path(run + "/last")).string();
    CheckpointFiles files = read_checkpoint(folder);
    change(files);
    write_checkpoint(folder, {files.begin(), files.end()});
  }

  TinyRunFolder folder_{"resume"};
};

// The manifest names it, but whoever carries a model away may leave it behind.
TEST_F(ResumeTest, OnlyATrainingOpensTheOptimizersFile) {
  const std::string lines = "ba ce di\nfo gu\n", masks = "ba <mask> di\n";
  struct Use {
    const char* task;
    std::vector<std::pair<std::string, std::string>> commands;  // and what they read from stdin
  };
  const std::vector<Use> uses = {
      {"translation",
       {{"translate --model run", lines},
        {"score --model run --source valid.src --target valid.tgt", ""},
        {"average run/checkpoint-15 run/checkpoint-20 --output mean", ""},
        {"inspect run", ""}}},
      {"clm",
       {{"generate --model run --seed 1", lines},
        {"evaluate --model run --text valid.src", ""},
        {"score --model run --target valid.src", ""},
        {"inspect run/checkpoint-20", ""}}},
      {"mlm", {{"fill-mask --model run", masks}}},
      {"classification", {{"classify --model run", lines}}},
      {"images", {{"evaluate --model run --images valid-images.gz --labels valid-labels", ""}}},
  };
  for (const Use& use : uses) {
    begin(use.task);
    std::vector<std::string> before;
    for (const auto& [command, input] : use.commands) {
      before.push_back(folder_.output(command, input));
    }
    const auto expect_same = [&](const char* what) {
      for (size_t i = 0; i < before.size(); ++i) {
        const auto& [command, input] = use.commands[i];
        EXPECT_EQ(folder_.output(command, input), before[i]) << command << ": " << what;
      }
      folder_.forget_messages();
      EXPECT_EQ(folder_.train(use.task, "run", {"training.max_steps=20"}), 3) << what;
      EXPECT_THAT(folder_.messages(), HasSubstr("optimizer.safetensors")) << what;
      EXPECT_THAT(folder_.messages(), HasSubstr(" is whole:\n")) << what;
    };
    std::vector<fs::path> optimizers;
    for (const auto& entry : fs::directory_iterator(folder_.path("run"))) {
      if (entry.is_symlink() || !entry.is_directory()) continue;
      optimizers.push_back(entry.path() / "optimizer.safetensors");
      ASSERT_TRUE(fs::exists(optimizers.back()));
    }
    ASSERT_FALSE(optimizers.empty());
    for (const fs::path& file : optimizers) std::ofstream(file) << "garbage";
    expect_same("garbage");
    for (const fs::path& file : optimizers) fs::remove(file);
    expect_same("missing");
  }
}

TEST_F(ResumeTest, ADamagedModelIsRefusedByAll) {
  begin("translation");
  const std::string file = folder_.path("run/best/model.safetensors");
  std::string bytes = read_file(file);
  bytes[bytes.size() - 5] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  for (const char* command : {"translate --model run", "inspect run",
                              "score --model run --source valid.src --target valid.tgt",
                              "average run/best run/best --output mean"}) {
    const TinyRunFolder::Outcome outcome = folder_.run(command, "ba ce\n");
    EXPECT_EQ(outcome.code, 3) << command;
    EXPECT_THAT(outcome.err, HasSubstr("model.safetensors is damaged: its checksum is "))
        << command;
  }
}

TEST_F(ResumeTest, ACheckpointThatLacksAFileIsNamed) {
  for (const char* name :
       {"trainer_state.json", "optimizer.safetensors", "model.safetensors", "config.json"}) {
    begin("translation");
    commit("run", [&](CheckpointFiles& files) { files.erase(name); });
    folder_.forget_messages();
    EXPECT_EQ(folder_.train("translation", "run", {"training.max_steps=30"}), 3);
    EXPECT_THAT(folder_.messages(),
                HasSubstr(concat("checkpoint-20 has no ", name, ": no training goes on from it.")));
  }
}

TEST_F(ResumeTest, StateThatDoesNotFitIsNamed) {
  const std::string of_weights = "exp_avg/", file = "optimizer.safetensors";
  const auto error_after = [&](const std::function<void(NamedTensors&)>& change) {
    begin("translation");
    commit("run", [&](CheckpointFiles& files) {
      NamedTensors tensors = parse_safetensors(files.at(file), file);
      change(tensors);
      std::vector<TensorToWrite> entries;
      for (const auto& [name, tensor] : tensors) entries.emplace_back(name, tensor);
      files.at(file) = safetensors_bytes(entries);
    });
    folder_.forget_messages();
    EXPECT_EQ(folder_.train("translation", "run", {"training.max_steps=30"}), 3);
    return folder_.messages();
  };
  const auto first = [&](NamedTensors & tensors) -> auto& {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const auto& entry) { return entry.first.starts_with(of_weights); });
  };
  EXPECT_THAT(error_after([&](NamedTensors& all) { first(all).first += "x"; }),
              HasSubstr("checkpoint-20/optimizer.safetensors has no exp_avg/"));
  EXPECT_THAT(error_after([&](NamedTensors& all) { first(all).second = Tensor::zeros({3}); }),
              HasSubstr(" is (3) in "));
  EXPECT_THAT(error_after([&](NamedTensors& all) {
                first(all).second = first(all).second.to(DType::kFloat64);
              }),
              HasSubstr("optimizer.safetensors, the model needs float32."));
  EXPECT_THAT(error_after([&](NamedTensors& all) { all.emplace_back("more", Tensor::zeros({})); }),
              HasSubstr("has more, the model has no such parameter."));
}

TEST_F(ResumeTest, IsFoundOnceAndHoldsNoTensorInMemory) {
  begin("translation");
  Config config = load_config(folder_.path("translation.yaml"), {});
  const RunFolder run(folder_.path("run"));
  const int64_t before = host_memory().bytes_in_use;
  const Resume resume("auto", run, config);
  EXPECT_EQ(host_memory().bytes_in_use, before);
  EXPECT_TRUE(resume.goes_on());
  EXPECT_EQ(resume.state().step, 20);
  EXPECT_NE(resume.tokenizers().source, nullptr);
  EXPECT_EQ(resume.passed_over(), "");
  EXPECT_FALSE(resume.model().empty());
  EXPECT_FALSE(resume.training().under("exp_avg/").empty());

  const RunFolder other(folder_.path("other"));
  const Resume nothing("auto", other, config);
  EXPECT_FALSE(nothing.goes_on());
  EXPECT_EQ(nothing.state().step, 0);
  EXPECT_EQ(nothing.tokenizers().source, nullptr);
  EXPECT_TRUE(nothing.model().empty());
  EXPECT_THROW(Resume("never", run, config), Error);
  EXPECT_TRUE(Resume(folder_.path("run/checkpoint-15"), other, config).goes_on());
}

// A checkpoint of an older version has zeros where sizes follow from others, and lacks new keys.
TEST_F(ResumeTest, AnOldRunFolderIsNoChange) {
  train("clm", "run");
  commit("run", [&](CheckpointFiles& files) {
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(files.at("config.json"));
    for (const char* key : {"num_key_value_heads", "value_head_size"}) {
      ASSERT_NE(config.at("model").at(key), 0) << key;
      config["model"][key] = 0;
    }
    for (const char* key : {"warmup_ratio", "min_lr_ratio"}) config.at("training").erase(key);
    files.at("config.json") = config.dump();
  });
  folder_.forget_messages();
  train("clm", "run");
  EXPECT_THAT(folder_.messages(), testing::Not(HasSubstr("changed since")));
  EXPECT_THAT(folder_.messages(), HasSubstr("resuming after update 20"));
}

TEST_F(ResumeTest, AnotherModelIsToldHowToGoOn) {
  begin("translation");
  for (const char* change :
       {"model.hidden_size=32", "model.encoder_layers=2", "training.optimizer={name: sgd}"}) {
    folder_.forget_messages();
    EXPECT_EQ(folder_.train("translation", "run", {"training.max_steps=30", change}), 3);
    EXPECT_THAT(folder_.messages(), HasSubstr("Changed since the checkpoint: ")) << change;
    EXPECT_THAT(folder_.messages(),
                HasSubstr("start anew with --resume never and another output_dir."))
        << change;
  }
  EXPECT_THAT(folder_.messages(), HasSubstr("training.optimizer.name adam -> sgd"));
}

// As after a kill between the rename of a checkpoint and its links.
TEST_F(ResumeTest, LinksThatWereLeftBehindAreMended) {
  begin("clm");
  const fs::path best = folder_.path("run/best"), last = folder_.path("run/last");
  ASSERT_EQ(fs::read_symlink(best), "checkpoint-20");
  for (const fs::path& link : {best, last}) {
    fs::remove(link);
    fs::create_symlink("checkpoint-10", link);
  }
  train("clm", "run");  // is over at once
  EXPECT_EQ(fs::read_symlink(best), "checkpoint-20");
  EXPECT_EQ(fs::read_symlink(last), "checkpoint-20");
}

TEST_F(ResumeTest, NumbersThatAreNoneAreNamed) {
  begin("translation");
  const std::string file = "model.safetensors", name = "decoder.layers.0.feed_forward.";
  std::string planted;
  commit("run", [&](CheckpointFiles& files) {
    NamedTensors tensors = parse_safetensors(files.at(file), file);
    std::vector<TensorToWrite> entries;
    for (const auto& [key, tensor] : tensors) {
      if (planted.empty() && key.starts_with(name)) {
        planted = key;
        tensor.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
      }
      entries.emplace_back(key, tensor);
    }
    files.at(file) = safetensors_bytes(entries);
  });
  ASSERT_NE(planted, "");
  fs::remove(folder_.path("run/best"));
  for (const char* command : {"translate --model run", "evaluate --model run --data valid",
                              "average run/checkpoint-15 run/checkpoint-20 --output mean",
                              "train translation.yaml output_dir=run training.max_steps=30"}) {
    const TinyRunFolder::Outcome outcome = folder_.run(command, "ba ce\n");
    EXPECT_EQ(outcome.code, 3) << command;
    EXPECT_THAT(outcome.err, HasSubstr("[checkpoint] " + planted + " in ")) << command;
    EXPECT_THAT(outcome.err, HasSubstr("must hold finite numbers, got nan at element 3."));
  }
}

// Averages and the optimizer's state go from their memory into the file.
TEST_F(ResumeTest, ASaveTakesNoMemoryOfTensors) {
  const auto peak = [&](const std::string& run, const char* interval) {
    train("translation", run,
          {concat("training.save_steps=", interval), "training.eval_steps=0",
           "training.logging_steps=1", "model.hidden_size=128", "training.batch_size=32",
           "training.ema_decay=0.9"});
    std::string last;  // the line of a log that came before the last save
    for (const std::string& line : lines_of(read_file(folder_.path(run + "/metrics.jsonl")))) {
      if (line.find("peak_bytes") != std::string::npos) last = line;
    }
    return nlohmann::json::parse(last).at("peak_bytes").get<double>();
  };
  EXPECT_LE(peak("each", "1"), peak("none", "0"));
}

}  // namespace
}  // namespace tapestry
