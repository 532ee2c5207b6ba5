// Runs that begin with another run's parameters (init_from), and parameters that stay as they are
// (training.freeze).
#include <gmock/gmock.h>

#include "apps/config/config.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;
using Tensors = std::map<std::string, Tensor>;

class TransferTest : public testing::Test {
 protected:
  int train(const std::string& task, const std::string& run,
            const std::vector<std::string>& overrides = {}) const {
    return folder_.train(task, run, overrides);
  }
  /// A few updates, so that no parameter is as it was drawn.
  void pretrain(const std::string& task, const std::string& run) const {
    ASSERT_EQ(train(task, run, {"training.max_steps=20"}), 0) << messages();
    folder_.forget_messages();
  }
  std::string messages() const { return folder_.messages(); }
  Tensors parameters(const std::string& checkpoint) const {
    const NamedTensors tensors =
        parse_safetensors(read_checkpoint(folder_.path(checkpoint)).at("model.safetensors"), "");
    return {tensors.begin(), tensors.end()};
  }
  static bool same_bits(const Tensor& a, const Tensor& b) {
    return a.to_vector<float>() == b.to_vector<float>();
  }

  TinyRunFolder folder_{"transfer"};
};

/// One update that moves nothing by more than the rate.
const std::vector<std::string> kStandStill = {"training.max_steps=1", "training.ema_decay=0",
                                              "training.learning_rate=1e-20",
                                              "training.optimizer={name: adamw, weight_decay: 0}"};

TEST_F(TransferTest, AClassifierTakesOverTheTrunkOfAMaskedModel) {
  pretrain("mlm", "mlm");
  ASSERT_EQ(train("classification", "run", kStandStill + std::vector<std::string>{"init_from=mlm"}),
            0)
      << messages();
  const Tensors before = parameters("mlm/best"), after = parameters("run/last");
  std::vector<std::string> fresh, unused;
  for (const auto& [name, tensor] : after) {
    if (!before.contains(name)) {
      fresh.push_back(name);
      continue;
    }
    const auto a = tensor.to_vector<float>(), b = before.at(name).to_vector<float>();
    ASSERT_EQ(a.size(), b.size()) << name;
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-18) << name;
  }
  for (const auto& [name, tensor] : before) {
    if (!after.contains(name)) unused.push_back(name);
  }
  EXPECT_THAT(fresh, testing::UnorderedElementsAre("pooler.weight", "pooler.bias",
                                                   "classifier.weight", "classifier.bias"));
  EXPECT_THAT(unused,
              testing::UnorderedElementsAre("head.dense.weight", "head.dense.bias",
                                            "head.norm.weight", "head.norm.bias", "head.bias"));
  EXPECT_THAT(messages(),
              HasSubstr(concat("init_from: ", after.size() - fresh.size(), " parameters from ")));
  EXPECT_THAT(messages(), HasSubstr("/model.safetensors; fresh: pooler.weight pooler.bias "
                                    "classifier.weight classifier.bias; not used: head."));
  // The vocabulary goes with the parameters.
  EXPECT_EQ(read_checkpoint(folder_.path("run/last")).at("tokenizer.model"),
            read_checkpoint(folder_.path("mlm/last")).at("tokenizer.model"));
}

// The last layer of a classifier is its classes': two others are others, however many there are.
TEST_F(TransferTest, OtherClassesBeginWithAFreshLastLayer) {
  pretrain("classification", "old");
  std::string three, two;
  for (const std::string& line : lines_of(read_file(folder_.path("train.tsv")))) {
    const std::string text = line.substr(line.find('\t'));
    three += concat(text.size() / 3 % 3, text, '\n');
    two += concat(text.size() % 2 == 0 ? "even" : "odd", text, '\n');
  }
  folder_.write("three.tsv", three);
  folder_.write("two.tsv", two);
  for (const std::string labels : {"train", "two", "three"}) {
    const std::string file = labels + ".tsv";
    ASSERT_EQ(
        train("classification", labels,
              kStandStill + std::vector<std::string>{"init_from=old", "data.train.tsv=" + file,
                                                     "data.valid.tsv=" + file}),
        0)
        << messages();
    const Tensors before = parameters("old/best"), after = parameters(labels + "/last");
    for (const auto& [name, tensor] : after) {
      const bool kept = labels == "train" || !name.starts_with("classifier.");
      EXPECT_EQ(before.at(name).shape() == tensor.shape() && same_bits(before.at(name), tensor),
                kept)
          << labels << ": " << name;
    }
  }
}

TEST_F(TransferTest, TheSameTaskGoesOnWithOtherData) {
  pretrain("clm", "clm");
  ASSERT_EQ(train("clm", "run",
                  kStandStill + std::vector<std::string>{"init_from=clm/checkpoint-20",
                                                         "data.train.text=train.tgt"}),
            0)
      << messages();
  EXPECT_THAT(messages(), HasSubstr("checkpoint-20/model.safetensors\n"));
  EXPECT_THAT(messages(), Not(HasSubstr("; fresh:")));
  EXPECT_THAT(messages(), Not(HasSubstr("; not used:")));
}

// Its kind of model is not the first of the task's, so nothing but the kind of examples tells it.
TEST_F(TransferTest, AConfigWithoutAModelTakesTheOneOfItsExamples) {
  pretrain("images", "pictures");
  const std::string config = kTinyTasks.at("images"), run = kTinyRun;
  folder_.write("no_model.yaml",
                config.substr(0, config.find("model:")) + run.substr(run.find("output_dir:")));
  ASSERT_EQ(train("no_model", "run", kStandStill + std::vector<std::string>{"init_from=pictures"}),
            0)
      << messages();
  EXPECT_THAT(messages(), Not(HasSubstr("; fresh:")));
  EXPECT_THAT(messages(), Not(HasSubstr("; not used:")));
}

TEST_F(TransferTest, ANamedTokenizerMustBeTheOneOfTheModel) {
  pretrain("mlm", "mlm");
  pretrain("clm", "other");
  const std::vector<std::string> overrides =
      kStandStill + std::vector<std::string>{"init_from=mlm"};
  const std::string own = "mlm/last/tokenizer.model", other = "other/last/tokenizer.model";
  ASSERT_EQ(train("classification", "same",
                  overrides + std::vector<std::string>{"tokenizer={path: " + own + "}"}),
            0)
      << messages();
  EXPECT_EQ(train("classification", "run",
                  overrides + std::vector<std::string>{"tokenizer={path: " + other + "}"}),
            3);
  EXPECT_THAT(messages(), HasSubstr("/mlm/best and "));
  EXPECT_THAT(messages(), HasSubstr(concat('/', other, " must have the same vocabulary")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run/last")));
}

TEST_F(TransferTest, AnotherShapeIsNamedWithBothSizes) {
  pretrain("mlm", "mlm");
  EXPECT_EQ(train("classification", "run", {"init_from=mlm", "model.intermediate_size=24"}), 3);
  EXPECT_THAT(messages(), HasSubstr("error: [init_from] layers.0.feed_forward."));
  EXPECT_THAT(messages(), HasSubstr(" is (32, 16) in "));
  EXPECT_THAT(messages(), HasSubstr("/model.safetensors, the model needs (24, 16).\n"));
}

TEST_F(TransferTest, AModelWithoutThePiecesOfTheTaskIsRefused) {
  pretrain("clm", "clm");
  EXPECT_EQ(train("mlm", "run", {"init_from=clm"}), 2);
  EXPECT_THAT(messages(), HasSubstr("<mask>"));
}

TEST_F(TransferTest, WhatIsNoRunIsRefused) {
  std::filesystem::create_directories(folder_.path("empty"));
  EXPECT_EQ(train("mlm", "run", {"init_from=empty"}), 3);
  EXPECT_THAT(messages(), HasSubstr("empty is neither a checkpoint nor a run folder"));
  EXPECT_EQ(train("mlm", "run", {"init_from=nowhere"}), 3);
  EXPECT_THAT(messages(), HasSubstr("nowhere is neither a checkpoint nor a run folder"));
}

TEST_F(TransferTest, AResumedRunGoesOnFromItsOwnCheckpoint) {
  pretrain("mlm", "mlm");
  const std::vector<std::string> from = {"init_from=mlm"};
  ASSERT_EQ(train("classification", "whole", from), 0) << messages();
  ASSERT_EQ(
      train("classification", "parts", from + std::vector<std::string>{"training.max_steps=33"}), 0)
      << messages();
  std::filesystem::remove_all(folder_.path("mlm"));
  folder_.forget_messages();
  ASSERT_EQ(train("classification", "parts", from), 0) << messages();
  EXPECT_THAT(messages(), Not(HasSubstr("init_from")));
  expect_equal(folder_.result("whole"), folder_.result("parts"));
}

TEST_F(TransferTest, AResumedClassifierKeepsItsClasses) {
  ASSERT_EQ(train("classification", "run"), 0) << messages();
  EXPECT_EQ(train("classification", "run", {"data.labels=[late, early]"}), 2);
  EXPECT_THAT(messages(),
              HasSubstr("error: [train] data.labels must be those of the checkpoint, in "
                        "its order: early, late.\n"));
  EXPECT_EQ(train("classification", "run", {"data.labels=[early, late]"}), 0);
  // Two classes again, but others.
  folder_.write("train.tsv", "late\tba ce\nlater\tfo di\n");
  EXPECT_EQ(train("classification", "run", {"training.max_steps=70"}), 3);
  EXPECT_THAT(messages(), HasSubstr("train.tsv:2 must have one of the labels early, late, got "
                                    "'later'"));
}

TEST_F(TransferTest, FrozenParametersKeepTheirBitsAndTheOthersMove) {
  const std::vector<std::string> freeze = {
      "training.freeze=[embedding.weight, \"layers.*.self_attention.*\"]",
      "training.optimizer={name: adamw, weight_decay: 0.1}"};
  pretrain("mlm", "mlm");
  for (const char* average : {"training.ema_decay=0", "training.ema_decay=0.9"}) {
    const std::string run = concat("run-", average);
    ASSERT_EQ(train("mlm", run,
                    freeze + std::vector<std::string>{"init_from=mlm/last", average,
                                                      "training.max_steps=20"}),
              0)
        << messages();
    int frozen = 0;
    const Tensors before = parameters("mlm/last");
    for (const auto& [name, tensor] : parameters(run + "/last")) {
      const bool stays = name == "embedding.weight" || name.starts_with("layers.0.self_attention.");
      EXPECT_EQ(same_bits(tensor, before.at(name)), stays) << name << ' ' << average;
      frozen += stays;
    }
    EXPECT_EQ(frozen, 5);
  }
}

TEST_F(TransferTest, FrozenRunsResumeToTheSameBits) {
  const std::vector<std::string> freeze = {"training.freeze=[\"embedding.*\", \"*.bias\"]"};
  for (const std::string task : {"clm", "translation"}) {
    const std::string whole = task + "-whole", parts = task + "-parts";
    ASSERT_EQ(train(task, whole, freeze), 0) << messages();
    ASSERT_EQ(train(task, parts, freeze + std::vector<std::string>{"training.max_steps=33"}), 0)
        << messages();
    ASSERT_EQ(train(task, parts, freeze), 0) << messages();
    expect_equal(folder_.result(whole), folder_.result(parts));
  }
}

TEST_F(TransferTest, AFreezeThatMatchesNothingOrEverythingIsAnError) {
  EXPECT_EQ(train("clm", "run", {"training.freeze=[embedding.weight, \"layer.*\"]"}), 2);
  EXPECT_THAT(messages(), HasSubstr("error: [train] training.freeze: no parameter's name matches "
                                    "'layer.*'; tapestry inspect lists them.\n"));
  EXPECT_EQ(train("clm", "run", {"training.freeze=[\"*\"]"}), 2);
  EXPECT_THAT(messages(), HasSubstr("error: [train] training.freeze leaves no parameter to train"));
}

// Only the adapters move, only they have a state, and what they learned is used.
TEST_F(TransferTest, AdaptersLearnBesideAModelThatStaysAsItIs) {
  pretrain("clm", "base");
  const std::string base = "init_from=" + folder_.path("base");
  ASSERT_EQ(train("clm", "run",
                  {base, "training.lora={rank: 4, alpha: 8}", "training.max_steps=20",
                   "training.ema_decay=0"}),
            0)
      << messages();
  const Tensors before = parameters("base/last"), after = parameters("run/last");
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(same_bits(tensor, after.at(name))) << name;
  }
  EXPECT_EQ(after.size(), before.size() + 4);
  const Tensor& up = after.at("layers.0.self_attention.qkv.lora_B");
  EXPECT_FALSE(same_bits(up, Tensor::zeros(up.shape())));
  const auto state = read_checkpoint(folder_.path("run/last")).at("optimizer.safetensors");
  for (const auto& [name, tensor] : parse_safetensors(state, "")) {
    EXPECT_TRUE(tensor.numel() == 1 || name.find("lora_") != std::string::npos) << name;
  }
  const std::string ask = " --target " + folder_.path("valid.src");
  EXPECT_NE(folder_.output("score --model run" + ask), folder_.output("score --model base" + ask));
}

TEST_F(TransferTest, AdaptersResumeToTheSameBits) {
  for (const std::string task : {"mlm", "translation"}) {
    const std::vector<std::string> lora = {
        concat("training.lora={rank: 2, dropout: 0.1, target: [\"*\"], modules_to_save: "
               "[\"*norm*\"], dora: ",
               task == "translation" ? "true}" : "false}")};
    const std::string whole = task + "-whole", parts = task + "-parts";
    ASSERT_EQ(train(task, whole, lora), 0) << messages();
    ASSERT_EQ(train(task, parts, lora + std::vector<std::string>{"training.max_steps=33"}), 0)
        << messages();
    ASSERT_EQ(train(task, parts, lora), 0) << messages();
    expect_equal(folder_.result(whole), folder_.result(parts));
  }
}

// It begins as the model that it comes from, and a search has what validation computes with.
TEST_F(TransferTest, MagnitudesOfRowsLearnBesideAModel) {
  pretrain("clm", "base");
  const std::vector<std::string> options = {"init_from=" + folder_.path("base"),
                                            "training.ema_decay=0"};
  const auto begin = [&](const std::string& run, const std::string& lora, int64_t steps) {
    ASSERT_EQ(train("clm", run,
                    options + std::vector<std::string>{concat("training.lora={", lora, "}"),
                                                       concat("training.max_steps=", steps)}),
              0)
        << messages();
  };
  begin("run", "rank: 2, alpha: 8, target: [\"*\"], dora: true", 20);
  const Tensors before = parameters("base/last"), after = parameters("run/last");
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(same_bits(tensor, after.at(name))) << name;
  }
  EXPECT_EQ(after.size(), before.size() + 3 * 4);
  const Tensor& magnitude = after.at("layers.0.self_attention.qkv.lora_magnitude");
  const Tensor first = row_lengths(before.at("layers.0.self_attention.qkv.weight"));
  EXPECT_FALSE(same_bits(magnitude, first));
  const std::string ask = " --target " + folder_.path("valid.src");
  const std::string scores = folder_.output("score --model run" + ask);
  EXPECT_NE(scores, folder_.output("score --model base" + ask));
  folder_.output("export --model run --format huggingface --output merged");
  folder_.output("import merged --output back");
  const auto first_of = [](const std::string& lines) { return std::stod(lines); };
  EXPECT_NEAR(first_of(folder_.output("score --model back" + ask)), first_of(scores), 1e-4);
  // Those of a training in bfloat16 are of the numbers before they were rounded.
  ASSERT_EQ(
      train(
          "clm", "narrow",
          options + std::vector<std::string>{"training.lora={rank: 2, target: [\"*\"], dora: true}",
                                             "training.max_steps=1", "training.learning_rate=1e-12",
                                             "dtype=bfloat16"}),
      0)
      << messages();
  EXPECT_NEAR(first_of(folder_.output("score --model narrow" + ask)),
              first_of(folder_.output("score --model base" + ask)), 1e-4);
  // Adapters without magnitudes get some, others keep theirs.
  begin("plain", "rank: 2, alpha: 8", 3);
  const std::vector<std::string> more = {"training.ema_decay=0", "training.max_steps=1"};
  const auto go_on = [&](const std::string& from, const std::string& lora) {
    return train("clm", "from-" + from,
                 more + std::vector<std::string>{"init_from=" + folder_.path(from),
                                                 concat("training.lora={", lora, "}")});
  };
  EXPECT_EQ(go_on("plain", "rank: 2, alpha: 8, dora: true"), 0) << messages();
  EXPECT_EQ(go_on("run", "rank: 2, alpha: 8, target: [\"*\"]"), 2);
  EXPECT_THAT(messages(), HasSubstr("has adapters with training.lora.dora, and goes on with it"));
}

TEST_F(TransferTest, AdaptersThatMatchNothingAreAnError) {
  EXPECT_EQ(train("clm", "run", {"training.lora={rank: 2, target: [\"*.qv\"]}"}), 2);
  EXPECT_THAT(messages(), HasSubstr("error: [train] training.lora.target: no parameter's name "
                                    "matches '*.qv'"));
  ASSERT_EQ(train("clm", "adapted", {"training.lora={rank: 2}", "training.max_steps=1"}), 0);
  EXPECT_EQ(train("clm", "run", {"init_from=" + folder_.path("adapted")}), 2);
  EXPECT_THAT(messages(), HasSubstr("has adapters, which only training.lora of the same rank and "
                                    "alpha goes on with: 2 and 16, got 0 and 16."));
  EXPECT_EQ(train("clm", "run",
                  {"init_from=" + folder_.path("adapted"), "training.lora={rank: 2, alpha: 8}"}),
            2);
  EXPECT_THAT(messages(), HasSubstr("2 and 16, got 2 and 8."));
}

// What a new head needs to learn is no adapter.
TEST_F(TransferTest, AFreshParameterBesideAdaptersMustLearn) {
  pretrain("mlm", "mlm");
  const std::vector<std::string> options = {"init_from=" + folder_.path("mlm"),
                                            "training.max_steps=1"};
  EXPECT_EQ(
      train("classification", "run", options + std::vector<std::string>{"training.lora={rank: 2}"}),
      2);
  EXPECT_THAT(messages(), HasSubstr("would never learn: name it in training.lora.modules_to_save"));
  EXPECT_EQ(train("classification", "run",
                  options + std::vector<std::string>{"training.lora={rank: 2, modules_to_save: "
                                                     "[\"pooler.*\", \"classifier.*\"]}"}),
            0)
      << messages();
}

TEST_F(TransferTest, KeysThatChangeTheModelAreTold) {
  pretrain("clm", "base");
  ASSERT_EQ(
      train("clm", "run",
            {"init_from=" + folder_.path("base"), "training.max_steps=1", "model.norm_eps=1e-3"}),
      0)
      << messages();
  EXPECT_THAT(messages(), HasSubstr("the model of init_from computes otherwise: model.norm_eps "));
}

}  // namespace
}  // namespace tapestry
