// How many updates a run has, and which parameters decay.
#include <gtest/gtest.h>

#include "apps/run/updates.h"
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
