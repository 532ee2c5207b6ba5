#include <gmock/gmock.h>

#include "data/corpora/corpus.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/files/files.h"
#include "tests/data/walks.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Characters, HaveIdsInCodePointOrder) {
  const auto tokenizer = character_tokenizer("b\na\U0001F600ä b", false, 0);
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_THAT(tokenizer->encode("\n abä\U0001F600"), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_EQ(tokenizer->piece(0), "<pad>");
  EXPECT_EQ(tokenizer->piece(3), "</s>");
  EXPECT_EQ(tokenizer->piece(4), "\n");
  EXPECT_EQ(tokenizer->piece(9), "\U0001F600");
  EXPECT_FALSE(tokenizer->mask_id().has_value());
  EXPECT_EQ(tokenizer->sentinels(), 0);
  EXPECT_TRUE(tokenizer->starts_word(7));
  EXPECT_THAT(error_of(ErrorKind::kRuntime, [&] { tokenizer->piece(10); }),
              HasSubstr("ids must be in [0, 10), got 10."));
  EXPECT_THAT(error_of(ErrorKind::kRuntime, [&] { tokenizer->decode({-1}); }),
              HasSubstr("got -1."));
}

TEST(Characters, SpecialPiecesComeBeforeThem) {
  const auto tokenizer = character_tokenizer("ab<mask>", true, 2);
  EXPECT_EQ(tokenizer->mask_id(), 4);
  EXPECT_EQ(tokenizer->sentinel_id(0), 5);
  EXPECT_EQ(tokenizer->sentinel_id(1), 6);
  EXPECT_FALSE(tokenizer->sentinel_id(2).has_value());
  EXPECT_FALSE(tokenizer->sentinel_id(-1).has_value());
  EXPECT_EQ(tokenizer->piece(4), "<mask>");
  EXPECT_EQ(tokenizer->piece(6), "<extra_id_1>");
  EXPECT_TRUE(tokenizer->is_special(6));
  EXPECT_FALSE(tokenizer->is_special(7));
  // Text never becomes a special piece, and special pieces have no text.
  EXPECT_THAT(tokenizer->encode("<mask>"), testing::Each(testing::Ge(7)));
  EXPECT_EQ(tokenizer->decode({2, 4, 5, 0, 3}), "");
}

TEST(Characters, RoundTripIsExact) {
  const std::string text = "a\r\n\tb \u00A0 c\u0301\uFB01\u1E9B\u0323\n\n\U0001F600 \uFF21";
  const auto tokenizer = character_tokenizer(text);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_THAT(tokenizer->encode("az"), ElementsAre(testing::Gt(kEosId), kUnkId));
  EXPECT_EQ(tokenizer->decode({kUnkId}), "\uFFFD");
}

TEST(Characters, BytesGiveTheSameTokenizer) {
  for (const bool mask : {false, true}) {
    for (const int64_t sentinels : {0, 3}) {
      const auto tokenizer = character_tokenizer("a\n\U0001F600\r", mask, sentinels);
      const auto again = load_tokenizer(tokenizer->serialized(), "file");
      EXPECT_EQ(again->serialized(), tokenizer->serialized());
      EXPECT_EQ(again->vocab_size(), tokenizer->vocab_size());
      EXPECT_EQ(again->mask_id(), tokenizer->mask_id());
      EXPECT_EQ(again->sentinels(), sentinels);
      EXPECT_EQ(again->encode("\U0001F600\n"), tokenizer->encode("\U0001F600\n"));
    }
  }
}

TEST(Characters, DamagedFilesAreErrors) {
  const auto message = [](const std::string& lines) {
    return error_of(ErrorKind::kData,
                    [&] { load_tokenizer("tapestry characters 1\n" + lines, "t.txt"); });
  };
  EXPECT_EQ(message("U+0061\nU+0060\n"),
            "[tokenizer] t.txt:3 must name a special piece or the next character, got 'U+0060'.");
  EXPECT_THAT(message("U+0061\nU+0061\n"), HasSubstr("t.txt:3 must"));
  EXPECT_THAT(message("U+0061\nU+006"), HasSubstr("t.txt:3 must"));  // cut short
  EXPECT_THAT(message("U+D800\n"), HasSubstr("'U+D800'"));
  EXPECT_THAT(message("U+110000\n"), HasSubstr("'U+110000'"));
  EXPECT_THAT(message("U+0061 \n"), HasSubstr("'U+0061 '"));
  EXPECT_THAT(message("<extra_id_1>\nU+0061\n"), HasSubstr("'<extra_id_1>'"));
  EXPECT_THAT(message("U+0061\n<mask>\n"), HasSubstr("'<mask>'"));
  EXPECT_THAT(message("<mask>\n"), HasSubstr("at least one character, got none."));
}

TEST(Characters, TravelInFiles) {
  const auto a = character_tokenizer("a"), b = character_tokenizer("b");
  const TokenizerPair joint{a, a}, both{a, b};
  EXPECT_THAT(joint.files(), ElementsAre(testing::Pair("tokenizer.txt", a->serialized())));
  EXPECT_TRUE(load_tokenizers(joint.files()).shared());
  const auto again = load_tokenizers(both.files());
  EXPECT_EQ(again.source->serialized(), a->serialized());
  EXPECT_EQ(again.target->serialized(), b->serialized());
  for (const auto& pair : {joint, both}) {
    for (const auto& [name, bytes] : pair.files()) {
      EXPECT_THAT(kTokenizerFileNames, testing::Contains(name));
    }
  }
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load_tokenizers({{"target.txt", "x"}});
                       }),
              HasSubstr("target.txt"));
}

TEST(Characters, OfWholeFilesKnowLineEnds) {
  TempFolder folder;
  CorpusSpec spec;
  spec.text = folder.write("a", "ab\n\nc\n");
  TokenizerOptions options;
  options.type = "char";
  options.vocab_size = 0;  // the text decides
  EXPECT_EQ(train_tokenizers(options, {spec}, 1).source->vocab_size(), 4 + 3);
  spec.documents = "file";
  EXPECT_EQ(train_tokenizers(options, {spec}, 1).source->vocab_size(), 4 + 4);
}

class TokenizerPath : public testing::Test {
 protected:
  TokenizerPath() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "some words about number " + std::to_string(i) + "\n";
    spec_.text = folder_.write("text", text);
    options_.vocab_size = 60;
  }
  TempFolder folder_;
  CorpusSpec spec_;
  TokenizerOptions options_;
};

TEST_F(TokenizerPath, IsTakenInsteadOfTraining) {
  for (const char* const type : TokenizerOptions::kTypes) {
    if (type == std::string("huggingface")) continue;  // cannot be trained
    options_.type = type;
    options_.path = "";
    options_.mask_piece = true;
    options_.sentinels = 5;
    const auto trained = train_tokenizers(options_, {spec_}, 1);
    options_.path = folder_.write("model", trained.source->serialized());
    options_.vocab_size = 1;  // the file decides
    options_.sentinels = 4;
    const auto read = train_tokenizers(options_, {spec_}, 1);
    EXPECT_TRUE(read.shared());
    EXPECT_EQ(read.source->serialized(), trained.source->serialized());
    options_.sentinels = 6;
    EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { read_tokenizer(options_); }),
                HasSubstr("must have the special pieces <extra_id_0> to <extra_id_5>, got 5"));
    options_.vocab_size = 60;
  }
}

TEST_F(TokenizerPath, MustFitTheOptions) {
  const auto plain = train_tokenizers(options_, {spec_}, 1);
  options_.path = folder_.write("model", plain.source->serialized());
  options_.mask_piece = true;
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { read_tokenizer(options_); }),
              HasSubstr("model must have the special piece <mask>, got none."));
  options_.mask_piece = false;
  options_.share = false;
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { read_tokenizer(options_); }),
              HasSubstr("to both sides"));
  options_.share = true;
  options_.type = "char";
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_tokenizer(options_); }),
              HasSubstr("must be of type char, got a SentencePiece model or no tokenizer."));
  options_.path = folder_.write("characters", character_tokenizer("a")->serialized());
  options_.type = "sentencepiece";
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_tokenizer(options_); }),
              HasSubstr("must be of type sentencepiece, got a vocabulary of characters."));
  options_.path = folder_.path("no");
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_tokenizer(options_); }),
              HasSubstr("no cannot be opened: "));
  options_.path = folder_.path("");
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_tokenizer(options_); }),
              HasSubstr("is a directory, expected a file."));
}

class SpecialPieces : public TokenizerPath, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Types, SpecialPieces, testing::Values("sentencepiece", "bpe"));

TEST_P(SpecialPieces, AreNeverText) {
  options_.type = GetParam();
  options_.mask_piece = true;
  options_.sentinels = 3;
  const auto tokenizer = train_tokenizers(options_, {spec_}, 1).source;
  EXPECT_EQ(tokenizer->vocab_size(), 60);
  EXPECT_EQ(tokenizer->mask_id(), 4);
  EXPECT_EQ(tokenizer->sentinels(), 3);
  EXPECT_EQ(tokenizer->piece(*tokenizer->sentinel_id(2)), "<extra_id_2>");
  for (const int32_t id : tokenizer->encode("some <mask> <extra_id_0> words")) {
    EXPECT_TRUE(id == kUnkId || !tokenizer->is_special(id)) << tokenizer->piece(id);
  }
  const auto ids = tokenizer->encode("some words");
  std::vector<int32_t> mixed = {kBosId, *tokenizer->mask_id()};
  mixed.insert(mixed.end(), ids.begin(), ids.end());
  mixed.push_back(*tokenizer->sentinel_id(0));
  EXPECT_EQ(tokenizer->decode(mixed), "some words");
  std::string starts;
  for (const int32_t id : ids) starts += tokenizer->starts_word(id) ? '1' : '0';
  EXPECT_EQ(std::count(starts.begin(), starts.end(), '1'), 2) << starts;
  EXPECT_EQ(starts.front(), '1');
}

TEST_F(TokenizerPath, LongDocumentsAreLearnedLineByLine) {
  // SentencePiece itself takes no text of more than 4192 bytes.
  const auto by_line = train_tokenizers(options_, {spec_}, 1);
  spec_.documents = "file";
  const auto by_file = train_tokenizers(options_, {spec_}, 1);
  EXPECT_EQ(by_file.source->serialized(), by_line.source->serialized());
}

TEST(SameVocabulary, NamesBothAndTheFirstDifference) {
  const auto pair = [](const std::string& text) {
    const auto tokenizer = character_tokenizer(text, false, 0);
    return TokenizerPair{tokenizer, tokenizer};
  };
  check_same_vocabulary(pair("abc"), "runs/a", pair("abc"), "runs/b");
  const auto message = [&](const std::string& a, const std::string& b) {
    return error_of(ErrorKind::kData,
                    [&] { check_same_vocabulary(pair(a), "runs/a", pair(b), "runs/b"); });
  };
  EXPECT_EQ(message("abc", "axyz"),
            "[tokenizer] runs/a and runs/b must have the same vocabulary, got 7 and 8 pieces; the "
            "first that differs has id 5: 'b' and 'x'.");
  EXPECT_THAT(message("abc", "ab"), HasSubstr("has id 6: 'c' and none."));
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         const TokenizerPair other{pair("ab").source, pair("ac").source};
                         check_same_vocabulary(pair("ab"), "x", other, "y");
                       }),
              HasSubstr("'b' and 'c'"));
}

}  // namespace
}  // namespace tapestry
