// The experiment files of configs/: each must be read without an error and describe a model that can be
// built, whatever data it is pointed at.
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/config.h"

namespace tapestry {
namespace {

std::vector<std::string> shipped_configs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TAPESTRY_SOURCE_DIR "/configs")) {
    paths.push_back(entry.path().string());
  }
  return paths;
}

class ShippedConfig : public testing::TestWithParam<std::string> {};

TEST_P(ShippedConfig, DescribesAModel) {
  // Any file that exists stands in for the corpora: this test reads none of them.
  const std::string file = TAPESTRY_SOURCE_DIR "/README.md";
  std::vector<std::string> overrides;
  const bool ding = GetParam().find("ding") != std::string::npos;
  for (const std::string& part : std::vector<std::string>{"data.train.", "data.valid."}) {
    for (const std::string& key : ding ? std::vector<std::string>{"ding"}
                                      : std::vector<std::string>{"source", "target"}) {
      overrides.push_back(part + key + "=" + file);
    }
  }
  const Config config = load_config(GetParam(), overrides);
  ParamStore store(config.seed);
  const int64_t vocab = config.tokenizer.vocab_size;
  const EncoderDecoder model(config.model, {.source_size = vocab, .target_size = vocab},
                             store.root());
  EXPECT_GT(store.elements(), vocab * config.model.hidden_size);
  EXPECT_EQ(parse_config(to_yaml(config), "resolved").training.max_steps,
            config.training.max_steps);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedConfig, testing::ValuesIn(shipped_configs()),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).stem().string();
                         });

}  // namespace
}  // namespace tapestry
