// How many updates a run has, and which parameters decay.
#include <gtest/gtest.h>

#include "apps/run/updates.h"
#include "apps/tasks/answers/placeholders.h"
#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

TEST(TotalUpdates, AreThoseOfTheEpochsOrMaxStepsWhicheverAreFewer) {
  const auto total = [](double epochs, int64_t max_steps, int64_t accumulation, int64_t batches) {
    TrainingOptions training;
    training.num_train_epochs = epochs;
    training.max_steps = max_steps;
    training.gradient_accumulation_steps = accumulation;
    return total_updates(training, batches);
  };
  EXPECT_EQ(total(0, 7, 1, 0), 7);
  EXPECT_EQ(total(2, 0, 1, 10), 20);
  EXPECT_EQ(total(2, 5, 1, 10), 5);
  EXPECT_EQ(total(2, 30, 1, 10), 20);
  EXPECT_EQ(total(2, 0, 3, 10), 7) << "the last update is a whole one";
  EXPECT_EQ(total(1.5, 0, 1, 5), 8);
  EXPECT_EQ(total(0.1, 0, 1, 30), 3);
  EXPECT_EQ(total(1e-9, 0, 1, 30), 1);
  EXPECT_EQ(total(1e9, 12, 1, int64_t{1} << 40), 12);
  // Of 2 epochs of 125 batches each 100 were read; then batches are twice as large.
  TrainingOptions training;
  training.num_train_epochs = 2;
  training.max_steps = 0;
  const int64_t more = more_updates(training, 63, 100, 0, 13);
  EXPECT_EQ(total_updates(training, 63, more), 100 + 13 + 63);
}

TEST(DecayGroups, FollowTheKeys) {
  const Var matrix = Var::parameter(Tensor::zeros({2, 3})),
            table = Var::parameter(Tensor::zeros({4, 3})),
            bias = Var::parameter(Tensor::zeros({3}));
  const NamedVars params = {
      {"layer.weight", matrix}, {"embedding.weight", table}, {"layer.bias", bias}};
  // The names of those that decay.
  const auto decaying = [&](bool all, const std::vector<std::string>& excluded) {
    TrainingOptions training;
    training.decay_all = all;
    training.decay_exclude = excluded;
    std::set<std::string> names;
    for (const ParamGroup& group : decay_groups(training, params, params)) {
      if (group.weight_decay == 0.0) continue;
      for (const auto& [name, var] : group.params) names.insert(name);
    }
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(decaying(false, {}), (Names{"layer.weight", "embedding.weight"}));
  EXPECT_EQ(decaying(true, {}), (Names{"layer.weight", "embedding.weight", "layer.bias"}));
  EXPECT_EQ(decaying(false, {"embedding.*"}), Names{"layer.weight"});
  EXPECT_EQ(decaying(true, {"*.bias"}), (Names{"layer.weight", "embedding.weight"}));
  try {
    decaying(false, {"embeding.*"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(),
                 "[train] training.optimizer.decay_exclude: no parameter's name matches "
                 "'embeding.*'; tapestry inspect lists them.");
  }
}

// Adapters are matrices: nothing else learns beside them.
TEST(DecayGroups, AKeyThatChangesNothingIsRefused) {
  const Var matrix = Var::parameter(Tensor::zeros({2, 3})),
            bias = Var::parameter(Tensor::zeros({3}));
  const NamedVars all = {{"layer.weight", matrix}, {"layer.bias", bias}},
                  learning = {{"layer.weight", matrix}};
  const auto error = [&](const TrainingOptions& training) {
    return error_of(ErrorKind::kConfig, [&] { decay_groups(training, learning, all); });
  };
  TrainingOptions training;
  training.decay_exclude = {"*.bias"};
  EXPECT_EQ(error(training),
            "[train] training.optimizer.decay_exclude: no parameter that learns has a name that "
            "matches '*.bias'; tapestry inspect lists them.");
  training.decay_exclude = {};
  training.decay_all = true;
  EXPECT_EQ(error(training),
            "[train] training.optimizer.decay_all has no effect: no bias and no norm learns.");
}

class UpdateGroupsTest : public testing::Test {
 protected:
  // The names of matrices that muon makes orthogonal, with how many each packs.
  std::map<std::string, size_t> matrices(const std::string& task,
                                         std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(),
                     {"training.optimizer.name=muon", "training.learning_rate=0.02"});
    Config config = load_config(folder_.path(task + ".yaml"), overrides);
    const auto store = model_of(config).parameters(
        config, placeholder_tokenizers(config, [](const std::string&) {}));
    const NamedVars learning = trained_parameters(store->named(), config);
    std::map<std::string, size_t> found;
    size_t others = 0;
    for (const ParamGroup& group : update_groups(config, learning, *store)) {
      EXPECT_TRUE(group.orthogonalize || group.learning_rate_scale == 1e-3 / 0.02);
      if (!group.orthogonalize) others += group.params.size();
      if (!group.orthogonalize) continue;
      EXPECT_EQ(group.learning_rate_scale, 1);
      for (const auto& [name, var] : group.params) found[name] = group.packed_rows.at(name).size();
    }
    EXPECT_EQ(others + found.size(), learning.size());
    return found;
  }
  TinyRunFolder folder_{"update-groups"};
};

using Matrices = std::map<std::string, size_t>;

TEST_F(UpdateGroupsTest, MuonTakesTheMatricesBetweenLayers) {
  const Matrices encoder = {{"layers.0.self_attention.qkv.weight", 3},
                            {"layers.0.self_attention.out.weight", 1},
                            {"layers.0.feed_forward.up.weight", 1},
                            {"layers.0.feed_forward.down.weight", 1}};
  EXPECT_EQ(matrices("clm"), encoder);
  EXPECT_EQ(matrices("clm", {"model.tie_word_embeddings=false"}), encoder);
  Matrices pooled = encoder;
  pooled["pooler.weight"] = 1;
  EXPECT_EQ(matrices("images"), pooled) << "patches and classes are at the ends";
  Matrices gated = encoder;
  gated["layers.0.feed_forward.up.weight"] = 2;
  EXPECT_EQ(matrices("clm", {"model.hidden_act=swiglu"}), gated);
  const Matrices translation = matrices("translation");
  EXPECT_EQ(translation.at("decoder.layers.0.cross_attention.kv.weight"), 2u);
  EXPECT_EQ(translation.size(), 4u + 4u + 3u);
  Matrices less = encoder;
  less.erase("layers.0.self_attention.out.weight");
  EXPECT_EQ(matrices("clm", {"training.optimizer.adamw_parameters=['*.out.weight']"}), less);
  EXPECT_EQ(matrices("translation", {"model={type: rnn_attention, hidden_size: 16, "
                                     "encoder_layers: 1, decoder_layers: 1}"})
                .at("encoder.layers.0.recurrent.weight"),
            6u);
}

// Both matrices of an adapter, the upper one as many as the matrix beside it packs.
TEST_F(UpdateGroupsTest, AdaptersAreMatricesToo) {
  EXPECT_EQ(matrices("clm", {"training.lora={rank: 2, target: ['*.qkv']}"}),
            (Matrices{{"layers.0.self_attention.qkv.lora_A", 1},
                      {"layers.0.self_attention.qkv.lora_B", 3}}));
}

TEST_F(UpdateGroupsTest, WithoutSuchAMatrixMuonIsRefused) {
  const auto error_of = [&](const std::string& task, const std::vector<std::string>& overrides) {
    try {
      matrices(task, overrides);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of("images", {"model={type: linear}"}),
            "[train] training.optimizer.name: muon is for matrices between layers, and none learns "
            "here; take adamw.");
  EXPECT_EQ(error_of("clm", {"training.freeze=['layers.*']"}),
            error_of("images", {"model={type: linear}"}));
  EXPECT_EQ(error_of("clm", {"training.optimizer.adamw_parameters=['embedding.*']"}),
            "[train] training.optimizer.adamw_parameters: 'embedding.*' names no matrix that "
            "learns and that muon would take; tapestry inspect lists the names.");
  EXPECT_EQ(error_of("clm", {"training.learning_rate=1e-300",
                             "training.optimizer.adamw_learning_rate=1e100"}),
            "[train] training.optimizer.adamw_learning_rate, 1e+100, is too much beside "
            "training.learning_rate, 1e-300.");
}

// One update by a rate so small that only the decay moves anything far.
TEST(DecayGroups, DecideWhatATrainingPulls) {
  const TinyRunFolder folder("decay");
  const auto trained = [&](const std::string& run, const std::string& keys) {
    EXPECT_EQ(
        folder.train(
            "clm", run,
            {"training.max_steps=1", "training.ema_decay=0", "training.lr_scheduler_type=constant",
             "training.warmup_steps=0", "training.learning_rate=1e-6",
             concat("training.optimizer={name: adamw, weight_decay: 1e5", keys, "}")}),
        0)
        << folder.messages();
    std::map<std::string, double> first;
    const std::string bytes = read_file(folder.path(run + "/last/model.safetensors"));
    const auto header =
        nlohmann::json::parse(bytes.substr(8, *reinterpret_cast<const uint64_t*>(bytes.data())));
    const size_t data = 8 + *reinterpret_cast<const uint64_t*>(bytes.data());
    for (const char* name : {"norm.weight", "layers.0.feed_forward_norm.weight"}) {
      if (!header.contains(name)) continue;
      const size_t at = data + header.at(name).at("data_offsets").at(0).get<size_t>();
      first[name] = *reinterpret_cast<const float*>(bytes.data() + at);
    }
    return first.begin()->second;
  };
  // Norms start at 1; a decay of 1e5 * 1e-6 takes a tenth.
  EXPECT_NEAR(trained("matrices", ""), 1, 1e-5);
  EXPECT_NEAR(trained("all", ", decay_all: true"), 0.9, 1e-5);
  EXPECT_NEAR(trained("some", ", decay_all: true, decay_exclude: ['*norm.weight']"), 1, 1e-5);
}

}  // namespace
}  // namespace tapestry
