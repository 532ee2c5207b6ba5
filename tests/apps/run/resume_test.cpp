// Which files of a checkpoint are needed by whom, and what a training asks of one that it goes on
// from.
#include "apps/run/resume.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <limits>
#include <regex>

#include "core/allocator.h"
#include "tests/apps/run/long_run.h"
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

// It was trained when one key normalised both sides: it goes on with the tokenizer that it has.
TEST_F(ResumeTest, AnOldTranslationKeepsItsNormalization) {
  train("translation", "run", {"tokenizer.target_normalization=nmt_nfkc"});
  commit("run", [&](CheckpointFiles& files) {
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(files.at("config.json"));
    config.at("tokenizer").erase("target_normalization");
    files.at("config.json") = config.dump();
  });
  folder_.forget_messages();
  EXPECT_EQ(folder_.train("translation", "run", {"training.max_steps=21"}), 0)
      << folder_.messages();
  EXPECT_THAT(read_file(folder_.path("run/config.yaml")),
              HasSubstr("target_normalization: nmt_nfkc"));
  EXPECT_EQ(folder_.train("translation", "run",
                          {"training.max_steps=22", "tokenizer.target_normalization=nfkc"}),
            2);
  EXPECT_THAT(folder_.messages(), HasSubstr("a run keeps its tokenizer"));
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

// 200 pairs: 32 a batch, then 10.
TEST_F(ResumeTest, OtherBatchesReadWhatIsLeftOfTheEpochOnce) {
  const std::vector<std::string> keys = {
      "training.batch_type=sentences", "training.save_steps=1", "training.save_total_limit=0",
      "training.gradient_accumulation_steps=1", "training.flight_records=100"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), keys.begin(), keys.end());
    return more;
  };
  train("translation", "run", with({"training.batch_size=32", "training.max_steps=5"}));
  folder_.forget_messages();
  train("translation", "run", with({"training.batch_size=10", "training.max_steps=8"}));
  EXPECT_THAT(folder_.messages(),
              HasSubstr("epoch 0 goes on with the examples that are left, in other batches"));
  const auto state = [&](const char* run) {
    return nlohmann::json::parse(read_file(folder_.path(concat(run, "/last/trainer_state.json"))));
  };
  EXPECT_EQ(state("run")["epoch"], 0);
  EXPECT_EQ(state("run")["batch"], 3);
  EXPECT_EQ(state("run")["before"], nlohmann::json::parse(R"([{"batch_type": "sentences",
      "batch_size": 32, "batches": 5}])"));
  // 40 pairs were left, or 64 where the short batch was among the first.
  train("translation", "run", with({"training.batch_size=10", "training.max_steps=13"}));
  EXPECT_EQ(state("run")["epoch"], state("run").contains("before") ? 0 : 1);
  train("translation", "run", with({"training.batch_size=10", "training.max_steps=20"}));
  EXPECT_EQ(state("run")["epoch"], 1);
  EXPECT_FALSE(state("run").contains("before"));

  // Epochs are read to their end, whatever the batches were.
  const std::vector<std::string> one = {"training.max_steps=0", "training.num_train_epochs=1",
                                        "training.eval_steps=0"};
  train("translation", "epoch", with({"training.batch_size=32", "training.max_steps=4"}));
  std::vector<std::string> rest = with({"training.batch_size=64"});
  rest.insert(rest.end(), one.begin(), one.end());
  train("translation", "epoch", rest);
  EXPECT_EQ(state("epoch")["epoch"], 0);
  const int left = state("epoch")["step"].get<int>() - 4;
  EXPECT_TRUE(left == 2) << left;  // 72 or 96 pairs
  EXPECT_EQ(state("epoch")["batch"], left);
  folder_.forget_messages();
  train("translation", "epoch", rest);
  EXPECT_THAT(folder_.messages(), HasSubstr(concat("done: ", 4 + left, " updates")));
}

TEST_F(ResumeTest, OtherDataIsNamedAndBeginsAnEpoch) {
  begin("translation");
  const auto epoch = [&] {
    return nlohmann::json::parse(read_file(folder_.path("run/last/trainer_state.json")))["epoch"]
        .get<int64_t>();
  };
  const int64_t before = epoch();
  const std::string target = read_file(folder_.path("train.tgt"));
  std::string upper = target;
  std::reverse(upper.begin(), upper.end() - 1);
  for (const std::string& text : {upper, target.substr(0, target.size() / 2), target + target}) {
    begin("translation");
    const auto lines = std::count(text.begin(), text.end(), '\n');
    std::string source;
    for (int64_t i = 0; i < lines; ++i) source += "ba ce di\n";
    folder_.write("train.tgt", text.substr(0, text.rfind('\n') + 1));
    if (text != upper) folder_.write("train.src", source);
    folder_.forget_messages();
    EXPECT_EQ(folder_.train("translation", "run", {"training.max_steps=21"}), 0)
        << folder_.messages();
    EXPECT_THAT(folder_.messages(),
                HasSubstr("train.tgt is not the training data of the checkpoint"));
    EXPECT_EQ(epoch(), before + 1);
    EXPECT_THAT(folder_.messages(), testing::Not(HasSubstr("validation data of")));
  }
}

// The same bytes at another place are the same data.
TEST_F(ResumeTest, DataThatMovedIsTheSame) {
  begin("translation");
  train("translation", "plain", {"training.max_steps=20"});
  for (const char* name : {"src", "tgt"}) {
    fs::copy(folder_.path(concat("train.", name)), folder_.path(concat("moved.", name)));
  }
  folder_.forget_messages();
  train("translation", "run",
        {"training.max_steps=25", "data.train={source: moved.src, target: moved.tgt}"});
  EXPECT_THAT(folder_.messages(), testing::Not(HasSubstr("begins")));
  train("translation", "plain", {"training.max_steps=25"});
  expect_equal(folder_.result("run"), folder_.result("plain"));
}

// A score is kept only beside scores of the same kind.
TEST_F(ResumeTest, TheBestValueIsOfOneMetricAndOneText) {
  const auto best = [&] {
    const auto state =
        nlohmann::json::parse(read_file(folder_.path("run/last/trainer_state.json")));
    return state["best_step"].get<int64_t>();
  };
  struct Change {
    const char* keys;
    bool anew;
  };
  for (const Change& change :
       {Change{"training.metric_for_best_model=ppl", true},
        Change{"evaluation.lowercase=true", false},
        Change{"data.valid={source: train.src, target: train.tgt}", true},
        Change{"data.max_length=20", true}, Change{"training.learning_rate=1e-3", false},
        Change{"training.logging_steps=7", false}}) {
    begin("translation");
    const int64_t before = best();
    ASSERT_GT(before, 0);
    folder_.forget_messages();
    train("translation", "run", {"training.max_steps=21", "training.eval_steps=100", change.keys});
    const testing::Matcher<std::string> anew =
        HasSubstr(" begins anew, without the one of update ");
    EXPECT_THAT(folder_.messages(), change.anew ? anew : testing::Not(HasSubstr(" begins anew")))
        << change.keys;
    if (change.anew) {
      EXPECT_EQ(best(), 21) << change.keys;  // the first of its kind
    }
  }
  begin("translation");
  folder_.write("valid.tgt", read_file(folder_.path("valid.src")));
  folder_.forget_messages();
  train("translation", "run", {"training.max_steps=21"});
  EXPECT_THAT(folder_.messages(),
              HasSubstr("valid.tgt is not the validation data of the checkpoint"));
  EXPECT_EQ(best(), 21);
}

TEST_F(ResumeTest, AModelThatATrainingBeginsWithKeepsItsTokenizer) {
  begin("translation");
  for (const char* key : {"tokenizer.vocab_size=60", "tokenizer.type=char"}) {
    folder_.forget_messages();
    EXPECT_EQ(folder_.train("translation", "other", {"init_from=run", "training.max_steps=1", key}),
              2)
        << key;
    EXPECT_THAT(folder_.messages(), HasSubstr(" keeps its tokenizer, of which it is ")) << key;
  }
  // What is no more than a default gives way, and the records say what is in force.
  folder_.write("translation.yaml", std::regex_replace(read_file(folder_.path("translation.yaml")),
                                                       std::regex("tokenizer: .*"), ""));
  train("translation", "new", {"init_from=run", "training.max_steps=1"});
  for (const char* file : {"new/config.yaml", "new/last/config.json"}) {
    EXPECT_THAT(read_file(folder_.path(file)), testing::ContainsRegex("vocab_size\"?: ?40"))
        << file;
  }
  EXPECT_THAT(folder_.output("inspect new"), HasSubstr("vocab_size: 40"));
  train("translation", "new", {"init_from=run", "training.max_steps=2"});  // goes on
}

TEST_F(ResumeTest, WhatLearnsIsTold) {
  folder_.forget_messages();
  train("clm", "frozen", {"training.max_steps=1", "training.freeze=[embedding.*]"});
  EXPECT_THAT(folder_.messages(),
              testing::ContainsRegex("of which [0-9]+ in [0-9]+ learn; "
                                     "training.freeze keeps [0-9]+ in [0-9]+ by "
                                     "'embedding.\\*'"));
  EXPECT_THAT(folder_.output("inspect frozen"), HasSubstr(" learn; training.freeze keeps "));
  folder_.forget_messages();
  EXPECT_EQ(folder_.train("clm", "lora",
                          {"training.max_steps=1", "init_from=frozen", "training.lora.rank=2",
                           "training.freeze=[embedding.*]"}),
            2);
  EXPECT_THAT(folder_.messages(), HasSubstr("training.freeze: 'embedding.*' has no effect: what it "
                                            "names does not learn with training.lora anyway."));
}

// Targets of a causal model are its own tokens.
TEST_F(ResumeTest, APlanCountsTheTokensThatATrainingDoes) {
  const std::string plan = folder_.output(
      "plan clm.yaml training.batch_type=sentences training.batch_size=8 "
      "training.gradient_accumulation_steps=1");
  EXPECT_THAT(plan, HasSubstr("an update of 128 tokens"));  // 8 rows of 16
}

// Nothing is saved before the first update, so nothing waits.
TEST_F(ResumeTest, ASignalEndsWhatOnlyReads) {
  ASSERT_EQ(mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  folder_.forget_messages();
  EXPECT_EQ(folder_.train("translation", "piped", {"data.train={source: pipe, target: train.tgt}"}),
            2);
  EXPECT_THAT(folder_.messages(), HasSubstr("pipe is a pipe, which is read only once, expected a "
                                            "file."));
}

// A validation takes nearly all of the time here. The next start makes up for it.
TEST_F(ResumeTest, AnInterruptedValidationIsMeasuredByTheNextStart) {
  const std::vector<std::string> overrides = {
      "training.max_steps=6",     "training.eval_steps=1",
      "training.logging_steps=1", "data.valid={source: train.src, target: train.tgt}",
      "evaluation.num_beams=8",   "training.eval_batch_size=4",
      "training.save_steps=1000"};
  ASSERT_EQ(folder_.train("translation", "whole", overrides), 0) << folder_.messages();
  const auto of_kind = [&](const std::string& run, const char* kind) {
    std::vector<nlohmann::json> lines;
    for (const nlohmann::json& line : folder_.metrics(run)) {
      if (line.at("kind") == kind) lines.push_back(line);
    }
    return lines;
  };
  int interrupted = 0;
  const std::string log = folder_.path("parts/metrics.jsonl");
  for (size_t updates = 1; updates <= 3; ++updates) {
    const pid_t child = folder_.start("translation", "parts", overrides);
    const auto updates_so_far = [&] {
      size_t count = 0;
      const std::string text = fs::exists(log) ? read_file(log) : "";
      for (size_t at = 0; (at = text.find("\"kind\":\"train\"", at)) != std::string::npos; ++at) {
        ++count;
      }
      return count;
    };
    while (updates_so_far() < updates) sleep_milliseconds(1);
    kill(child, SIGTERM);
    ASSERT_EQ(TinyRunFolder::wait(child), 128 + SIGTERM) << folder_.messages();
    const auto state =
        nlohmann::json::parse(read_file(folder_.path("parts/last/trainer_state.json")));
    interrupted += state.value("owes_validation", false) ? 1 : 0;
  }
  EXPECT_GT(interrupted, 0);
  ASSERT_EQ(folder_.train("translation", "parts", overrides), 0) << folder_.messages();
  EXPECT_EQ(of_kind("whole", "valid"), of_kind("parts", "valid"));
  EXPECT_EQ(of_kind("whole", "valid").size(), 6U);
  expect_equal(folder_.result("whole"), folder_.result("parts"));
}

// What is drawn for a parameter that the other model has would be overwritten.
TEST_F(ResumeTest, AnInitializerNeedsAParameterThatIsDrawn) {
  begin("mlm");
  const std::vector<std::string> asked = {"init_from=run", "model.initializer=kaiming"};
  EXPECT_EQ(folder_.train("mlm", "tuned", asked), 2);
  EXPECT_THAT(folder_.messages(),
              testing::ContainsRegex("\\[init_from\\] model.initializer: kaiming has no effect: "
                                     "every parameter is taken from .*/run/best/"
                                     "model.safetensors. Leave the key out."));
  // A classifier's head is fresh.
  train("classification", "tuned", asked);
}

}  // namespace
}  // namespace tapestry
