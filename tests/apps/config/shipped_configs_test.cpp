// The experiment files of configs/: each must be read without an error and describe a model that
// can be built, whatever data it is pointed at.
#include <gtest/gtest.h>

#include <filesystem>

#include "apps/tasks/models.h"
#include "apps/tasks/task.h"
#include "data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

std::vector<std::string> shipped_configs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(project_file("configs"))) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  return paths;
}

/// Overrides that point every corpus at a file that exists: this test reads none of them.
std::vector<std::string> existing_files(const Config& config) {
  const std::string file = project_file("README.md");
  std::vector<std::string> overrides;
  const auto replace = [&](const std::string& key, const std::vector<CorpusSpec>& corpora) {
    for (size_t i = 0; i < corpora.size(); ++i) {
      const std::string name = corpora.size() == 1 ? key : concat(key, '.', i);
      const CorpusSpec& corpus = corpora[i];
      for (const std::string& member : CorpusSpec::file_keys()) {
        if (!corpus.file(member).empty()) overrides.push_back(concat(name, '.', member, '=', file));
      }
    }
  };
  replace("data.train", config.data.train);
  replace("data.valid", config.data.valid);
  return overrides;
}

class ShippedConfig : public testing::TestWithParam<std::string> {};

TEST_P(ShippedConfig, DescribesAModel) {
  // Read as a checkpoint's, no data file needs to exist.
  const Config lenient = load_checkpoint_config(read_file(GetParam()), GetParam());
  Config config = load_config(GetParam(), existing_files(lenient));
  EXPECT_EQ(to_yaml(parse_config(to_yaml(config))), to_yaml(config));
  EXPECT_FALSE(config.data.valid.empty());

  TokenizerOptions characters;
  characters.type = "char";
  bool more = true;
  const auto abc = [&](std::string& line) {
    line = "abc";
    return std::exchange(more, false);
  };
  const auto alphabet = train_tokenizer(characters, abc, /*seed=*/1);
  config.device = "cpu";
  EXPECT_GT(model_of(config).parameters(config, {alphabet, alphabet})->elements(),
            examples_of(config).of_points()
                ? 0
                : 4 * config.model.hidden_size * config.model.hidden_size);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedConfig, testing::ValuesIn(shipped_configs()),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).stem().string();
                         });

}  // namespace
}  // namespace tapestry
