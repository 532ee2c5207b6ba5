// Encoder-decoders of transformers with their own tokenizers: what they read and write is what
// transformers says (tests/fixtures/huggingface_pairs.py).
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/interop/huggingface_import.h"
#include "data/corpora/corpus.h"
#include "data/files/files.h"
#include "data/files/utf8.h"
#include "tests/apps/tiny_runs.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::string pair_fixture(const std::string& name) {
  return project_file("tests/fixtures/huggingface_text/" + name);
}

class FoldersOfPairs : public testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }

  void expect_translations(const std::string& model) const {
    std::string lines;
    for (const Json& row : expected_) lines += row["line"].get<std::string>() + '\n';
    // The twelve tokens of the fixtures, and an end, which our search forces.
    std::istringstream out(folder_.output(concat("translate --beam-size 1 --no-repeat-ngram-size 2 "
                                                 "--max-new-tokens 13 --detail jsonl --model ",
                                                 path(model)),
                                          lines));
    for (const Json& row : expected_) {
      std::string line;
      ASSERT_TRUE(std::getline(out, line));
      const Json translations = Json::parse(line)["translations"];
      EXPECT_EQ(translations.empty(), is_blank(row["line"].get<std::string>())) << row["line"];
      if (translations.empty()) continue;
      EXPECT_EQ(translations[0]["text"], row["text"]) << row["line"];
    }
  }

  TinyRunFolder folder_{"pairs"};
  Json expected_ = Json::parse(read_file(pair_fixture(GetParam()) + "/expected.json"));
};
INSTANTIATE_TEST_SUITE_P(Kinds, FoldersOfPairs,
                         testing::Values("marian", "bart", "mbart", "pegasus"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(FoldersOfPairs, ReadAndWriteAsTransformersDoes) {
  const auto imported = interop::import_folder(pair_fixture(GetParam()));
  const TokenizerPair& tokenizers = imported.tokenizers;
  EXPECT_TRUE(tokenizers.shared());
  const PairRows rows(tokenizers);
  for (const Json& row : expected_) {
    const auto line = row["line"].get<std::string>();
    EXPECT_EQ(in_frame(rows.source, tokenizers.source->encode(line)), row["ids"].get<Ids>())
        << row["line"];
    Ids target = row["target"].get<Ids>();
    if (target.back() != rows.eos) target.pop_back();  // a language, which follows no translation
    EXPECT_EQ(in_frame(rows.target, tokenizers.target->encode(line)), target) << row["line"];
    EXPECT_EQ(tokenizers.target->decode(row["written"].get<Ids>()), row["text"].get<std::string>())
        << row["line"];
  }
}

TEST_P(FoldersOfPairs, TranslateAsTransformersDoesAndGoHomeAsTheyCame) {
  folder_.output(concat("import ", pair_fixture(GetParam()), " --output ", path("imported")));
  expect_translations("imported");
  folder_.output(concat("export --model ", path("imported"), " --format huggingface --output ",
                        path("home"), " --architecture ", GetParam()));
  for (const char* file : {"source.spm", "target.spm", "vocab.json", "tokenizer.json"}) {
    if (!std::filesystem::exists(pair_fixture(GetParam()) + "/" + file)) continue;
    EXPECT_EQ(read_file(path("home/") + file), read_file(pair_fixture(GetParam()) + "/" + file))
        << file;
  }
  folder_.output(concat("import ", path("home"), " --output ", path("again")));
  expect_translations("again");
}

}  // namespace
}  // namespace tapestry
