// tokenizer.json of our tokenizers, read by a naive reader of that format; and SentencePiece's
// model files field by field.
#include "data/tokenizers/tokenizer_json.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "data/tokenizers/sentencepiece_model.h"

namespace tapestry {
namespace {

const std::vector<std::string> kLines = {
    "the cat sat on the mat", "the dog sat on the log",       "a cat and a dog",
    "on the mat a hat 123",   "the hat, the cat; 42 dogs!",   "logs and mats and hats and cats",
    "that is the thing",      "dogs sat and cats sat 7 times"};

std::shared_ptr<const Tokenizer> json_trained(TokenizerOptions options) {
  size_t next = 0;
  return train_tokenizer(
      options,
      [&](std::string& line) {
        if (next == kLines.size()) return false;
        line = kLines[next++];
        return true;
      },
      /*seed=*/1);
}

TokenizerOptions json_options(const std::string& type, int64_t size) {
  TokenizerOptions options;
  options.type = type;
  options.vocab_size = size;
  options.normalization = "identity";
  return options;
}

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> characters;
  for (const char byte : text) {
    if ((static_cast<unsigned char>(byte) & 0xC0) != 0x80) characters.emplace_back();
    characters.back() += byte;
  }
  return characters;
}

/// Byte-pair encoding as the format says it: the pair of lowest rank, the leftmost of equal ones.
class NaiveReader {
 public:
  explicit NaiveReader(const std::string& file) : json_(nlohmann::json::parse(file)) {
    int rank = 0;
    for (const auto& merge : json_["model"]["merges"]) {
      const std::string text = merge;
      const size_t space = text.find(' ');
      ranks_.emplace(std::pair(text.substr(0, space), text.substr(space + 1)), rank++);
    }
  }

  std::vector<int32_t> word(const std::string& text) const {
    std::vector<std::string> symbols = characters_of(text);
    while (true) {
      int best = -1;
      size_t place = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks_.find({symbols[i], symbols[i + 1]});
        if (found == ranks_.end() || (best >= 0 && found->second >= best)) continue;
        best = found->second;
        place = i;
      }
      if (best < 0) break;
      symbols[place] += symbols[place + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
    std::vector<int32_t> ids;
    for (const std::string& symbol : symbols) {
      const auto found = json_["model"]["vocab"].find(symbol);
      const bool known = found != json_["model"]["vocab"].end();
      ids.push_back(known ? found->get<int32_t>() : 1);
    }
    return ids;
  }

  const nlohmann::json& json() const { return json_; }

 private:
  nlohmann::json json_;
  std::map<std::pair<std::string, std::string>, int> ranks_;
};

int kind_of(char c) { return std::isalpha(c) != 0 ? 0 : std::isdigit(c) != 0 ? 1 : 2; }

// Words with their mark, split where kinds of characters meet if `by_kind`.
std::vector<std::string> words_of(const std::string& text, bool by_kind) {
  std::vector<std::string> words;
  bool begins = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') {
      begins = true;
      continue;
    }
    if (begins) {
      words.emplace_back("\xE2\x96\x81");
    } else if (by_kind && kind_of(text[i]) != kind_of(text[i - 1])) {
      words.emplace_back();
    }
    words.back() += text[i];
    begins = false;
  }
  return words;
}

void expect_same_ids(const Tokenizer& tokenizer, bool by_kind) {
  const NaiveReader reader(tokenizer_json(tokenizer, {}));
  for (std::string line : kLines) {
    line += " tattoo hat2hat";
    std::vector<int32_t> ids;
    for (const std::string& word : words_of(line, by_kind)) {
      for (const int32_t id : reader.word(word)) ids.push_back(id);
    }
    EXPECT_EQ(ids, tokenizer.encode(line)) << line;
  }
}

TEST(TokenizerJson, SentencePieceByMerges) {
  expect_same_ids(*json_trained(json_options("sentencepiece", 60)), /*by_kind=*/false);
}

TEST(TokenizerJson, OwnByPairsByMerges) {
  expect_same_ids(*json_trained(json_options("bpe", 60)), /*by_kind=*/true);
}

TEST(TokenizerJson, UnigramHasPiecesAndScores) {
  TokenizerOptions options = json_options("sentencepiece", 36);
  options.algorithm = "unigram";
  const auto tokenizer = json_trained(options);
  const auto json = nlohmann::json::parse(tokenizer_json(*tokenizer, {}));
  EXPECT_EQ(json["model"]["type"], "Unigram");
  ASSERT_EQ(json["model"]["vocab"].size(), 36u);
  for (int32_t id = 0; id < 36; ++id) {
    EXPECT_EQ(json["model"]["vocab"][static_cast<size_t>(id)][0], tokenizer->piece(id));
  }
}

TEST(TokenizerJson, CharactersAreAVocabularyWithoutMerges) {
  const auto tokenizer = json_trained(json_options("char", 60));
  const auto json = nlohmann::json::parse(tokenizer_json(*tokenizer, {}));
  EXPECT_TRUE(json["model"]["merges"].empty());
  EXPECT_TRUE(json["pre_tokenizer"].is_null());
  EXPECT_EQ(json["model"]["vocab"]["t"], tokenizer->encode("t")[0]);
}

TEST(TokenizerJson, TellsWhatStandsAroundAText) {
  const auto tokenizer = json_trained(json_options("char", 60));
  const auto json = nlohmann::json::parse(tokenizer_json(*tokenizer, {{kBosId}, {kEosId}}));
  const auto& single = json["post_processor"]["single"];
  ASSERT_EQ(single.size(), 3u);
  EXPECT_EQ(single[0]["SpecialToken"]["id"], "<s>");
  EXPECT_EQ(single[2]["SpecialToken"]["id"], "</s>");
  EXPECT_EQ(json["post_processor"]["special_tokens"]["</s>"]["ids"][0], kEosId);
  EXPECT_EQ(json["added_tokens"].size(), 4u);
}

// Each normalisation but identity brings the table of its rules.
TEST(TokenizerJson, OwnPairsBringTheRulesOfTheirNormalisation) {
  TokenizerOptions options = json_options("bpe", 60);
  options.normalization = "nmt_nfkc";
  const auto json = nlohmann::json::parse(tokenizer_json(*json_trained(options), {}));
  const auto& first = json["normalizer"]["normalizers"][0];
  EXPECT_EQ(first["type"], "Precompiled");
  EXPECT_GT(first["precompiled_charsmap"].get<std::string>().size(), 1000u);
}

TEST(SentencePieceModelFile, HasThePiecesOfTheTokenizer) {
  TokenizerOptions options = json_options("sentencepiece", 320);
  options.byte_fallback = true;
  const auto tokenizer = json_trained(options);
  const auto model = SentencePieceModel::parse(tokenizer->serialized(), "model");
  EXPECT_EQ(model.algorithm, SentencePieceModel::kBpe);
  EXPECT_TRUE(model.byte_fallback);
  EXPECT_TRUE(model.charsmap.empty());
  ASSERT_EQ(static_cast<int64_t>(model.pieces.size()), tokenizer->vocab_size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    EXPECT_EQ(model.pieces[id].text, tokenizer->piece(static_cast<int32_t>(id)));
  }
  EXPECT_EQ(model.pieces[0].type, SentencePieceModel::kControl);
  EXPECT_EQ(model.pieces[1].type, SentencePieceModel::kUnknown);
  EXPECT_EQ(model.pieces[4].type, SentencePieceModel::kByte);
  EXPECT_THROW(SentencePieceModel::parse("\x0A\xFF", "model"), Error);
}

TEST(SentencePieceModelFile, IsFilledUpWithPiecesThatNoTextHas) {
  const auto tokenizer = json_trained(json_options("sentencepiece", 60));
  const auto more = load_tokenizer(with_unused_pieces(tokenizer->serialized(), 60, 64), "more");
  EXPECT_EQ(more->vocab_size(), 64);
  EXPECT_EQ(more->encode("the cat <unused_61>"), tokenizer->encode("the cat <unused_61>"));
}

}  // namespace
}  // namespace tapestry
