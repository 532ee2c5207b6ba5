#include "data/tokenizers/marian.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/files/files.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const std::string kFolder = project_file("tests/fixtures/huggingface_text/marian");

TokenizerPair load_marian(const std::string& folder, int64_t rows = 0) {
  return read_marian(folder, {.eos = 0, .rows = rows}, {.eos = 0, .rows = rows});
}

TEST(Marian, SidesHaveOneVocabularyAndComeBackFromACheckpoint) {
  const TokenizerPair pair = load_marian(kFolder);
  EXPECT_FALSE(pair.one());
  EXPECT_TRUE(pair.shared());
  EXPECT_EQ(pair.source->special().eos, 0);
  EXPECT_EQ(pair.source->special().unk, 1);
  EXPECT_EQ(pair.source->piece(*pair.source->special().pad), "<pad>");
  EXPECT_NE(pair.source->encode("A man"), pair.target->encode("A man"));
  const auto files = pair.files();
  EXPECT_THAT(files, ElementsAre(Pair("source.marian", pair.source->serialized()),
                                 Pair("target.marian", pair.target->serialized())));
  for (const auto& [name, bytes] : files) EXPECT_THAT(kTokenizerFileNames, testing::Contains(name));
  const TokenizerPair again = load_tokenizers(files);
  EXPECT_TRUE(again.shared());
  EXPECT_EQ(again.target->encode("Ein Mann"), pair.target->encode("Ein Mann"));
  const MarianFiles parts = split_marian(files.at("target.marian"), "target.marian");
  EXPECT_EQ(parts.pieces, read_file(kFolder + "/target.spm"));
  EXPECT_EQ(parts.vocabulary, read_file(kFolder + "/vocab.json"));
}

TEST(Marian, SaysWhereTokensStand) {
  const auto source = load_marian(kFolder).source;
  const std::string text = ">>deu<< A man</s> A";
  const auto tokens = source->encode_with_places(text);
  Ids ids;
  int64_t end = 0;
  for (const PlacedToken& token : tokens) {
    ids.push_back(token.id);
    EXPECT_GE(token.begin, end);
    end = token.end;
  }
  EXPECT_EQ(ids, source->encode(text));
  EXPECT_EQ(end, std::ssize(text));
  EXPECT_EQ(tokens[0].end, 7);
  EXPECT_EQ(tokens[1].begin, 8);  // behind the space
  const auto close = std::ranges::find(tokens, 0, &PlacedToken::id);
  ASSERT_NE(close, tokens.end());
  EXPECT_EQ(close->begin, 13);
  EXPECT_EQ(close->end, 17);
}

class BrokenMarian : public testing::Test {
 protected:
  BrokenMarian() {
    for (const char* file : {"source.spm", "target.spm", "vocab.json", "tokenizer_config.json"}) {
      std::filesystem::copy(kFolder + "/" + file, folder_.path(file));
    }
  }
  std::string refusal(const std::string& vocabulary, int64_t rows = 0) {
    write_file(folder_.path("vocab.json"), vocabulary);
    return error_of(ErrorKind::kData, [&] { load_marian(folder_.path(""), rows); });
  }
  TempFolder folder_;
};

TEST_F(BrokenMarian, IsRefused) {
  EXPECT_THAT(refusal("[1]"), HasSubstr("vocab.json is not a JSON object"));
  EXPECT_THAT(refusal(R"({"</s>": 0, "<unk>": 1, "a": 1})"),
              HasSubstr("gives the id 1 to '<unk>' and to 'a'"));
  EXPECT_THAT(refusal(R"({"</s>": 0, "<unk>": 1, "a": "b"})"),
              HasSubstr(R"(gives 'a' the id "b", the model has 3 rows)"));
  EXPECT_THAT(refusal(R"({"</s>": 0, "<unk>": 1, "a": 5})", 4),
              HasSubstr("gives 'a' the id 5, the model has 4 rows"));
  EXPECT_THAT(refusal(R"({"</s>": 0, "a": 1})"), HasSubstr("must have a token <unk>"));
  write_file(folder_.path("source.spm"), "no model");
  EXPECT_THAT(refusal(R"({"</s>": 0, "<unk>": 1})"), HasSubstr("has no SentencePiece model"));
  EXPECT_EQ(load_marian(kFolder, 500).source->special().unused.size(),
            500 - Json::parse(read_file(kFolder + "/vocab.json")).size());
}

}  // namespace
}  // namespace tapestry
