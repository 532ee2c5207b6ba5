#include "data/tokenizers/tokenizer.h"

#include <gmock/gmock.h>
#include <sentencepiece_trainer.h>

#include <thread>

#include "core/base/philox.h"
#include "data/corpora/corpus.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

constexpr const char* kOwnBpe = "own bpe";

// Sentences of words of syllables, some rare characters among them.
std::vector<std::string> sentences(int count, uint64_t seed) {
  static const std::vector<std::string> kSyllables = {
      "ka", "lo", "mi", "ne", "tu", "schä", "ßer", "ung", "er", "ein", "st", "pl", "ó", "you"};
  std::vector<std::string> lines;
  uint64_t draw = 0;
  const auto below = [&](uint64_t bound) { return philox_below({seed, 0, 0}, draw++, bound); };
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (uint64_t words = 2 + below(8); words > 0; --words) {
      for (uint64_t syllables = 1 + below(3); syllables > 0; --syllables) {
        line += kSyllables[below(kSyllables.size())];
      }
      line += words > 1 ? " " : ".";
    }
    lines.push_back(line);
  }
  return lines;
}

LineSource source_of(const std::vector<std::string>& lines) {
  return [&lines, next = size_t{0}](std::string& line) mutable {
    if (next == lines.size()) return false;
    line = lines[next++];
    return true;
  };
}

std::shared_ptr<const Tokenizer> trained_on(const TokenizerOptions& options,
                                            const std::vector<std::string>& lines,
                                            uint64_t seed = 1) {
  return train_tokenizer(options, source_of(lines), seed);
}

/// Of SentencePiece with one of its algorithms, or of type bpe ("own bpe").
TokenizerOptions options_of(const std::string& algorithm, int64_t vocab_size) {
  TokenizerOptions options;
  if (algorithm == kOwnBpe) {
    options.type = "bpe";
  } else {
    options.algorithm = algorithm;
  }
  options.vocab_size = vocab_size;
  return options;
}

class Algorithms : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Algorithms, testing::Values("bpe", "unigram", "char", kOwnBpe));

TEST_P(Algorithms, RoundTripAndFixedIds) {
  const auto lines = sentences(500, 1);
  const auto tokenizer = trained_on(options_of(GetParam(), 120), lines);
  const bool by_characters = std::string(GetParam()) == "char";
  EXPECT_GE(tokenizer->vocab_size(), by_characters ? 20 : 120);
  EXPECT_LE(tokenizer->vocab_size(), 120);
  EXPECT_EQ(tokenizer->piece(0), "<pad>");
  EXPECT_EQ(tokenizer->piece(1), "<unk>");
  EXPECT_EQ(tokenizer->piece(2), "<s>");
  EXPECT_EQ(tokenizer->piece(3), "</s>");
  for (const std::string& line : sentences(200, 2)) {
    const auto ids = tokenizer->encode(line);
    for (const int32_t id : ids) {
      EXPECT_GT(id, 3);
      EXPECT_LT(id, tokenizer->vocab_size());
    }
    EXPECT_EQ(tokenizer->decode(ids), line);
  }
}

TEST_P(Algorithms, SameInputGivesTheSameBytes) {
  const auto lines = sentences(500, 1);
  const auto options = options_of(GetParam(), 100);
  const auto first = trained_on(options, lines);
  EXPECT_EQ(first->serialized(), trained_on(options, lines)->serialized());
}

TEST_P(Algorithms, BytesGiveTheSameTokenizer) {
  const auto tokenizer = trained_on(options_of(GetParam(), 100), sentences(500, 1));
  const auto again = load_tokenizer(tokenizer->serialized(), "file");
  for (const std::string& line : sentences(50, 3)) {
    EXPECT_EQ(again->encode(line), tokenizer->encode(line));
  }
}

TEST_P(Algorithms, TrainsWithoutAWordOnTheTerminal) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  trained_on(options_of(GetParam(), 100), sentences(500, 1));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

/// Those that learn pieces of words.
class Pieces : public Algorithms {};
INSTANTIATE_TEST_SUITE_P(All, Pieces, testing::Values("bpe", "unigram", kOwnBpe));

TEST_P(Pieces, TooLargeAVocabularyTellsTheLimit) {
  const auto lines = sentences(50, 1);
  const std::string message =
      error_of(ErrorKind::kConfig, [&] { trained_on(options_of(GetParam(), 50000), lines); });
  const std::string phrase =
      "[tokenizer] vocab_size 50000 is too large for this text, the largest possible is ";
  ASSERT_THAT(message, testing::StartsWith(phrase)) << GetParam();
  // The limit in the message must work, and one more must not.
  const int64_t limit = std::stoll(message.substr(phrase.size()));
  EXPECT_EQ(trained_on(options_of(GetParam(), limit), lines)->vocab_size(), limit) << GetParam();
  EXPECT_THAT(
      error_of(ErrorKind::kConfig, [&] { trained_on(options_of(GetParam(), limit + 1), lines); }),
      HasSubstr("is too large"))
      << GetParam();
}

TEST_P(Pieces, TooSmallAVocabularyTellsTheNeed) {
  EXPECT_THAT(error_of(ErrorKind::kConfig,
                       [&] { trained_on(options_of(GetParam(), 6), sentences(50, 1)); }),
              testing::MatchesRegex("\\[tokenizer\\] vocab_size 6 is too small for this text, its "
                                    "characters and the reserved pieces need [0-9]+; or lower "
                                    "character_coverage\\."));
}

TEST_P(Pieces, UnknownCharactersAreUnkOrBytes) {
  auto options = options_of(GetParam(), 100);
  const auto lines = sentences(500, 1);
  const auto plain = trained_on(options, lines);
  EXPECT_THAT(plain->encode("ka 犬"), testing::Contains(kUnkId));
  options.vocab_size = 400;
  options.byte_fallback = true;
  const auto bytes = trained_on(options, lines);
  const std::string rare = "ka 犬 👍 €";
  EXPECT_THAT(bytes->encode(rare), testing::Not(testing::Contains(kUnkId)));
  EXPECT_EQ(bytes->decode(bytes->encode(rare)), rare);
}

// Wherever a word is cut, its second part begins no word.
TEST_P(Pieces, AContinuationHasNoSpaceInFront) {
  const auto tokenizer = trained_on(options_of(GetParam(), 120), sentences(500, 1));
  for (const std::string& line : sentences(20, 3)) {
    for (size_t cut = 1; cut < line.size(); ++cut) {
      if (line[cut - 1] == ' ' || (line[cut] & 0xC0) == 0x80) continue;
      std::vector<int32_t> ids = tokenizer->encode(line.substr(0, cut));
      const auto rest = tokenizer->encode_continuation(line.substr(cut));
      ids.insert(ids.end(), rest.begin(), rest.end());
      EXPECT_EQ(tokenizer->decode(ids), line) << "cut at " << cut;
    }
  }
  EXPECT_TRUE(tokenizer->encode_continuation("").empty());
}

TEST_P(Pieces, LearnsFromLongLinesInParts) {
  std::string one_line;
  for (const std::string& line : sentences(500, 1)) one_line += line + ' ';
  ASSERT_GT(one_line.size(), 2u * 4192);
  const auto tokenizer = trained_on(options_of(GetParam(), 120), {one_line});
  EXPECT_EQ(tokenizer->vocab_size(), 120);
  const std::string without_spaces(10000, 'a');
  const bool own = std::string(GetParam()) == kOwnBpe;
  EXPECT_NO_THROW(trained_on(options_of(own ? kOwnBpe : "char", 8), {without_spaces}));
}

TEST_P(Pieces, NormalizationIsAChoice) {
  auto lines = sentences(500, 1);
  lines.push_back("ﬁ … ½ 1 2 fi ...");
  auto options = options_of(GetParam(), 120);
  const auto normalized = trained_on(options, lines);
  EXPECT_EQ(normalized->decode(normalized->encode("ﬁ …")), "fi ...");
  options.normalization = "identity";
  const auto identity = trained_on(options, lines);
  EXPECT_EQ(identity->decode(identity->encode("ﬁ … ½")), "ﬁ … ½");
}

TEST_P(Pieces, EmptyTextHasNoTokens) {
  const auto tokenizer = trained_on(options_of(GetParam(), 100), sentences(500, 1));
  EXPECT_TRUE(tokenizer->encode("").empty());
  EXPECT_TRUE(tokenizer->encode("  ").empty());
  EXPECT_EQ(tokenizer->decode({}), "");
}

TEST_P(Pieces, DecodeLeavesOutSpecialsAndChecksIds) {
  const auto tokenizer = trained_on(options_of(GetParam(), 100), sentences(500, 1));
  auto ids = tokenizer->encode("ka lo mi.");
  ids.insert(ids.begin(), kBosId);
  ids.insert(ids.end(), {kEosId, kPadId, kPadId});
  EXPECT_EQ(tokenizer->decode(ids), "ka lo mi.");
  EXPECT_EQ(error_of(ErrorKind::kRuntime, [&] { tokenizer->decode({100}); }),
            "[tokenizer] ids must be in [0, 100), got 100.");
  EXPECT_EQ(error_of(ErrorKind::kRuntime, [&] { tokenizer->piece(-1); }),
            "[tokenizer] ids must be in [0, 100), got -1.");
}

TEST_P(Pieces, SampleIsDrawnBySeed) {
  const auto lines = sentences(2000, 1);
  auto options = options_of(GetParam(), 100);
  options.max_sentences = 100;
  const auto one = trained_on(options, lines, 1)->serialized();
  EXPECT_EQ(one, trained_on(options, lines, 1)->serialized());
  EXPECT_NE(one, trained_on(options, lines, 2)->serialized());
  // Below the limit nothing is drawn.
  options.max_sentences = 2000;
  const auto all = trained_on(options, lines, 1)->serialized();
  EXPECT_EQ(all, trained_on(options, lines, 2)->serialized());
}

TEST_P(Pieces, EncodesFromSeveralThreads) {
  const auto tokenizer = trained_on(options_of(GetParam(), 100), sentences(500, 1));
  const auto lines = sentences(200, 5);
  std::vector<std::vector<std::vector<int32_t>>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (const std::string& line : lines) result.push_back(tokenizer->encode(line));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

struct Lines : sentencepiece::SentenceIterator {
  explicit Lines(const std::vector<std::string>& all) : lines(all) {}
  bool done() const override { return next == lines.size(); }
  void Next() override { ++next; }
  const std::string& value() const override { return lines[next]; }
  sentencepiece::util::Status status() const override { return {}; }
  const std::vector<std::string>& lines;
  size_t next = 0;
};

// Its trainer of BPE gets the words and how often they come instead of the lines, where that is the
// same: white space of every kind parts them as it does there.
TEST(SentencePiece, LearnsFromCountedWordsAsFromLines) {
  const std::vector<std::string> spaces = {"  ",      " \u00A0", "\u3000 ", "\u200B",
                                           " \u0308", "\r ",     " <s> "};
  std::vector<std::string> with_tabs = spaces, with_signs = spaces, with_unknown = spaces;
  with_tabs.push_back("\t");
  with_signs.push_back("\u2581 ");
  with_unknown.push_back("\u2585");
  for (const auto& between : {spaces, with_tabs, with_signs, with_unknown}) {
    std::vector<std::string> lines = sentences(300, 3);
    for (size_t i = 0; i < lines.size(); ++i) {
      const size_t kinds = between.size();
      lines[i] =
          between[i % kinds] + lines[i] + between[(i + 1) % kinds] + lines[(7 * i) % 300] + ' ';
    }
    for (const char* normalization : TokenizerOptions::kNormalizations) {
      TokenizerOptions options = options_of("bpe", 150);
      options.normalization = normalization;
      const auto ours = trained_on(options, lines);
      std::string bytes;
      Lines iterator(lines);
      ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train(
                      {{"model_type", "bpe"},
                       {"vocab_size", "150"},
                       {"character_coverage", concat(options.character_coverage)},
                       {"byte_fallback", options.byte_fallback ? "true" : "false"},
                       {"normalization_rule_name", normalization},
                       {"pad_id", "0"},
                       {"unk_id", "1"},
                       {"bos_id", "2"},
                       {"eos_id", "3"},
                       {"minloglevel", "1000"}},
                      &iterator, &bytes)
                      .ok());
      const auto theirs = load_tokenizer(bytes, "theirs");
      for (int32_t id = 0; id < 150; ++id) {
        EXPECT_EQ(ours->piece(id), theirs->piece(id))
            << between.back() << normalization << ' ' << id;
      }
    }
  }
}

TEST(SentencePiece, BlankLinesTeachNothing) {
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [] {
                         trained_on(options_of("bpe", 50), {"  ", " \t "});
                       }),
              HasSubstr("[tokenizer] expected words to learn from, got none."));
}

TEST(SentencePiece, ForeignBytesAreAnError) {
  EXPECT_THAT(
      error_of(ErrorKind::kData, [] { load_tokenizer("not a model", "a/tokenizer.model"); }),
      HasSubstr("a/tokenizer.model is not a SentencePiece model"));
  EXPECT_THAT(error_of(ErrorKind::kData, [] { load_tokenizer("", "x"); }), HasSubstr("x is no"));
}

TEST(TokenizerOptionsTest, AreChecked) {
  const auto message = [](auto&& change) {
    TokenizerOptions options;
    change(options);
    return error_of(ErrorKind::kConfig, [&] { options.validate(); });
  };
  EXPECT_EQ(message([](auto& o) { o.algorithm = "bpee"; }),
            "[tokenizer] algorithm must be one of bpe, unigram, char, got 'bpee'.");
  EXPECT_THAT(message([](auto& o) { o.type = "words"; }), HasSubstr("'words'"));
  EXPECT_THAT(message([](auto& o) { o.normalization = "none"; }), HasSubstr("'none'"));
  EXPECT_THAT(message([](auto& o) { o.vocab_size = 4; }), HasSubstr("in [5, "));
  EXPECT_THAT(message([](auto& o) { o.byte_fallback = true, o.vocab_size = 260; }),
              HasSubstr("in [261, 16777216] with byte_fallback"));
  EXPECT_THAT(message([](auto& o) { o.character_coverage = 0.5; }), HasSubstr("0.5"));
  EXPECT_THAT(message([](auto& o) { o.character_coverage = std::nan(""); }), HasSubstr("nan"));
  EXPECT_THAT(message([](auto& o) { o.max_sentences = -1; }), HasSubstr("-1"));
}

class Pairs : public testing::Test {
 protected:
  CorpusSpec spec() {
    std::string source, target;
    for (const std::string& line : sentences(300, 1)) source += line + "\n";
    for (int i = 0; i < 300; ++i) target += "ξένος λόγος " + std::to_string(i) + "\n";
    CorpusSpec spec;
    spec.source = folder_.write("a", source);
    spec.target = folder_.write("b", target);
    return spec;
  }
  TempFolder folder_;
};

TEST_F(Pairs, SharedModelKnowsBothSides) {
  const auto pair = train_tokenizers(options_of("bpe", 100), {spec()}, 1);
  EXPECT_TRUE(pair.shared());
  EXPECT_THAT(pair.source->encode("ka ξένος"), testing::Not(testing::Contains(kUnkId)));
  EXPECT_THAT(pair.files(),
              testing::ElementsAre(testing::Pair("tokenizer.model", pair.source->serialized())));
  const auto again = load_tokenizers(pair.files());
  EXPECT_TRUE(again.shared());
  EXPECT_EQ(again.source->serialized(), pair.source->serialized());
}

TEST_F(Pairs, SeparateModelsKnowTheirSide) {
  auto options = options_of("bpe", 60);
  options.share = false;
  const auto pair = train_tokenizers(options, {spec()}, 1);
  EXPECT_FALSE(pair.shared());
  EXPECT_THAT(pair.source->encode("ka lo"), testing::Not(testing::Contains(kUnkId)));
  EXPECT_THAT(pair.source->encode("ξένος"), testing::Contains(kUnkId));
  EXPECT_THAT(pair.target->encode("ξένος"), testing::Not(testing::Contains(kUnkId)));
  EXPECT_THAT(pair.target->encode("ka"), testing::Contains(kUnkId));
  const auto again = load_tokenizers(pair.files());
  EXPECT_EQ(again.source->serialized(), pair.source->serialized());
  EXPECT_EQ(again.target->serialized(), pair.target->serialized());
}

TEST_F(Pairs, TextAloneTrainsOneModel) {
  CorpusSpec text;
  text.text = spec().source;
  auto options = options_of("bpe", 60);
  options.share = false;
  EXPECT_TRUE(train_tokenizers(options, {text}, 1).shared());
}

TEST(TokenizerFiles, IncompleteSetsAreErrors) {
  const auto model = trained_on(options_of("bpe", 60), sentences(100, 1))->serialized();
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] {
                         load_tokenizers({{"source.model", model}});
                       }),
              HasSubstr("got source.model only."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { load_tokenizers({}); }), HasSubstr("got neither."));
}

}  // namespace
}  // namespace tapestry
