// Defaults that follow from other keys, and that a resolved config shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/config/config.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

Config config_with(const std::string& lines, const std::string& task = "clm") {
  return load_checkpoint_config(
      concat("task: ", task, "\noutput_dir: /run\ndata: {train: {text: x}}\n", lines), "c");
}

std::string value_of(const Config& config, const std::string& key) {
  const auto keys = flat_keys(config);
  const auto found = keys.find(key);
  return found == keys.end() ? "absent" : found->second;
}

// Reads the resolved config again: a second reading changes nothing.
void expect_settled(const Config& config) {
  EXPECT_EQ(to_yaml(load_checkpoint_config(to_yaml(config), "again")), to_yaml(config));
}

TEST(Defaults, EachOptimizerHasItsLearningRate) {
  const std::map<std::string, double> rates = {
      {"sgd", 1e-3},     {"momentum", 1e-3}, {"nesterov", 1e-3}, {"adagrad", 1e-2},
      {"rmsprop", 1e-3}, {"adadelta", 1},    {"adam", 1e-3},     {"adamw", 1e-3}};
  for (const auto& [name, rate] : rates) {
    const Config config =
        config_with(concat("training: {max_steps: 1, optimizer: {name: ", name, "}}\n"));
    EXPECT_EQ(config.learning_rate, rate) << name;
    EXPECT_EQ(std::stod(value_of(config, "training.learning_rate")), rate) << name;
    expect_settled(config);
  }
  const Config given =
      config_with("training: {max_steps: 1, learning_rate: 0.25, optimizer: {name: adadelta}}\n");
  EXPECT_EQ(given.learning_rate, 0.25);
  // Noam's is a factor.
  const Config noam =
      config_with("training: {max_steps: 1, lr_scheduler_type: noam, warmup_steps: 9}\n");
  EXPECT_EQ(noam.learning_rate, 1);
}

TEST(Defaults, AreSettledWhereTheyFollowFromOtherSizes) {
  const Config heads = config_with("training: {max_steps: 1}\nmodel: {num_attention_heads: 8}\n");
  EXPECT_EQ(value_of(heads, "model.num_key_value_heads"), "8");
  EXPECT_EQ(value_of(heads, "model.value_head_size"), "32") << "256 / 8";
  expect_settled(heads);
  const Config latent = config_with(
      "training: {max_steps: 1}\n"
      "model: {kv_latent_size: 8, position_embedding: rope, num_key_value_heads: 0}\n");
  EXPECT_EQ(value_of(latent, "model.rope_head_size"), "32") << "half of a head of 256 / 4";
  EXPECT_EQ(value_of(latent, "model.num_key_value_heads"), "0") << "latents have none";
  expect_settled(latent);
  for (const auto& [objective, density] :
       {std::pair{"span_corruption", 0.15}, std::pair{"infilling", 0.3}}) {
    const Config config =
        config_with(concat("training: {max_steps: 1}\ntokenizer: {vocab_size: 300}\n"
                           "denoising: {objective: ",
                           objective, ", noise_density: 0}\n"),
                    "denoising");
    EXPECT_EQ(std::stod(value_of(config, "denoising.noise_density")), density);
    expect_settled(config);
  }
}

TEST(Defaults, ARangeStandsForTheNormalInitializer) {
  const auto initializer = [](const std::string& keys) {
    const Config config = config_with(concat("training: {max_steps: 1}\nmodel: {", keys, "}\n"));
    expect_settled(config);
    return concat(value_of(config, "model.initializer"), ' ', config.model.initializer_range);
  };
  EXPECT_EQ(initializer(""), "xavier_packed 0");
  EXPECT_EQ(initializer("initializer_range: 0.05"), "normal 0.05");
  EXPECT_EQ(initializer("initializer: normal"), "normal 0.02");
  EXPECT_EQ(initializer("initializer: kaiming"), "kaiming 0");
  EXPECT_THROW(initializer("initializer: kaiming, initializer_range: 0.02"), Error);
  EXPECT_THROW(initializer("initializer: normal, initializer_range: 0"), Error);
}

TEST(Defaults, TheFinalNormFollowsThePlaceOfTheNorms) {
  const auto final_norm = [](const std::string& keys) {
    const Config config = config_with(concat("training: {max_steps: 1}\nmodel: {", keys, "}\n"));
    expect_settled(config);
    return value_of(config, "model.final_norm");
  };
  EXPECT_EQ(final_norm("norm_position: post"), "false");
  EXPECT_EQ(final_norm("norm_position: pre"), "true");
  EXPECT_EQ(final_norm("norm_position: post, final_norm: true"), "true");
  EXPECT_EQ(final_norm("norm_position: pre, final_norm: false"), "false");
}

TEST(Defaults, APlateauWatchesTheMetricOfTheBestModel) {
  const auto metric = [](const std::string& keys) {
    const Config config = load_checkpoint_config(
        concat("task: clm\noutput_dir: /run\ndata: {train: {text: x}, valid: {text: x}}\n"
               "training: {max_steps: 1, lr_scheduler_type: reduce_lr_on_plateau",
               keys, "}\n"),
        "c");
    expect_settled(config);
    return value_of(config, "training.lr_metric");
  };
  EXPECT_EQ(metric(""), "nll");
  EXPECT_EQ(metric(", metric_for_best_model: accuracy"), "accuracy");
  EXPECT_EQ(metric(", metric_for_best_model: accuracy, lr_metric: loss"), "loss");
}

TEST(Defaults, EpochsTakeThePlaceOfMaxSteps) {
  const Config config = config_with(
      "training: {num_train_epochs: 2.5, lr_scheduler_type: cosine, warmup_steps: 3}\n");
  EXPECT_EQ(config.training.num_train_epochs, 2.5);
  EXPECT_EQ(config.training.max_steps, 0);
  expect_settled(config);
  const auto error = [](const std::string& training) -> std::string {
    try {
      config_with(concat("training: ", training, '\n'));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error("{seed: 1}"), HasSubstr("missing key 'max_steps' in 'training'."));
  EXPECT_THAT(
      error("{max_steps: 0}"),
      HasSubstr("'training.max_steps' must be at least 1 without num_train_epochs, got 0."));
}

// Positions that are not learned are no limit.
TEST(Defaults, OnlyLearnedPositionsLimitTheLengthOfExamples) {
  const auto error = [](const std::string& positions) -> std::string {
    try {
      config_with(
          concat("training: {max_steps: 1}\nmodel: {max_position_embeddings: 100, "
                 "position_embedding: ",
                 positions, "}\n"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const char* positions : {"sinusoidal", "rope", "none"}) EXPECT_EQ(error(positions), "");
  EXPECT_THAT(error("learned"),
              HasSubstr("must be at least data.block_size for learned positions, got 100 and 256"));
}

// Checkpoints from before the key normalised both sides alike; resolved ones say what is in force.
TEST(Defaults, TargetsKeepTheirCharactersButInOldCheckpoints) {
  const std::string lines =
      "task: translation\noutput_dir: /run\ntraining: {max_steps: 1}\n"
      "data: {train: {source: /dev/null, target: /dev/null}}\n";
  const std::string key = "tokenizer.target_normalization";
  EXPECT_EQ(value_of(parse_config(lines), key), "identity");
  EXPECT_EQ(value_of(parse_config(lines + "tokenizer: {normalization: nfkc}\n"), key), "identity");
  const Config old = load_checkpoint_config(lines + "tokenizer: {normalization: nfkc}\n", "old");
  EXPECT_EQ(value_of(old, key), "nfkc");
  EXPECT_TRUE(old.one_normalization);
  const Config fresh = load_checkpoint_config(to_json(parse_config(lines)), "fresh");
  EXPECT_EQ(value_of(fresh, key), "identity");
  EXPECT_FALSE(fresh.one_normalization);
  expect_settled(old);
  for (const char* others : {"{type: char}", "{type: huggingface, path: /dev/null}"}) {
    EXPECT_EQ(value_of(parse_config(concat(lines, "tokenizer: ", others, '\n')), key), "absent");
  }
}

// A head of the usual size is none of its own.
TEST(Defaults, AHeadsSizeGivesThatOfItsValues) {
  const std::string begin = "training: {max_steps: 1}\nmodel: {num_attention_heads: 8, head_size: ";
  const Config own = config_with(begin + "24}\n");
  EXPECT_EQ(own.model.head_size, 24);
  EXPECT_EQ(own.model.value_head_size, 24);
  expect_settled(own);
  const Config usual = config_with(begin + "32}\n");
  EXPECT_EQ(usual.model.head_size, 0);
  EXPECT_EQ(usual.model.value_head_size, 32);
}

}  // namespace
}  // namespace tapestry
