// The two sides of a translation: one vocabulary that reads each of them as it is normalised, the
// symbols of users, and tokenizers of two files.
#include <gmock/gmock.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "data/corpora/corpus.h"
#include "data/files/files.h"
#include "data/tokenizers/character_changes.h"
#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/tokenizer_json.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Pair;

const std::vector<std::string> kSymbols = {"<BT>", ">>deu<<", "｟num｠", "a,\"b"};

TokenizerOptions options_of(const std::string& type) {
  TokenizerOptions options;
  const bool of_sentencepiece = type == "unigram" || type == "sentencepiece";
  options.type = of_sentencepiece ? "sentencepiece" : type;
  if (type == "sentencepiece") options.algorithm = "bpe";
  if (type == "unigram") options.algorithm = "unigram";
  options.vocab_size = type == "unigram" ? 25 : 38;
  return options;
}

std::shared_ptr<const Tokenizer> train(const TokenizerOptions& options,
                                       const std::vector<std::string>& lines) {
  return train_tokenizer(
      options,
      [&lines, next = size_t{0}](std::string& line) mutable {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      1);
}

std::vector<std::string> lines_of_words(int count) {
  static const std::vector<std::string> kWords = {"das", "haus", "ist", "alt",
                                                  "und", "neu",  "auch"};
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (int w = 0; w < 5; ++w) line += kWords[static_cast<size_t>(i * 3 + w * w) % 7] + " ";
    lines.push_back(line + "<BT> m２ .");
  }
  return lines;
}

class EachType : public testing::TestWithParam<const char*> {
 protected:
  const std::string type_ = GetParam();
};

class UserSymbols : public EachType {};
INSTANTIATE_TEST_SUITE_P(All, UserSymbols,
                         testing::Values("sentencepiece", "unigram", "bpe", "word", "char"));

// The text of ids is what was read, so nothing of a symbol is lost or normalised.
TEST_P(UserSymbols, AreOnePieceEachAndStayAsTheyAre) {
  TokenizerOptions options = options_of(type_);
  options.user_symbols = kSymbols;
  const auto trained = train(options, lines_of_words(100));
  for (const auto& tokenizer : {trained, load_tokenizer(trained->serialized(), "file")}) {
    ASSERT_EQ(tokenizer->symbols().size(), kSymbols.size());
    for (size_t i = 0; i < kSymbols.size(); ++i) {
      const int32_t id = tokenizer->symbols()[i];
      EXPECT_EQ(tokenizer->piece(id), kSymbols[i]);
      EXPECT_FALSE(tokenizer->is_special(id));
      for (const std::string& text : {kSymbols[i], kSymbols[i] + " das haus", "das " + kSymbols[i],
                                      "das" + kSymbols[i] + "haus ist"}) {
        const auto ids = tokenizer->encode(text);
        EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 1) << text;
        const bool joins_words = type_ == "word" && text.starts_with("das" + kSymbols[i]);
        if (!joins_words) {
          EXPECT_EQ(tokenizer->decode(ids), text);
        }
        std::vector<int32_t> placed;
        int64_t end = 0;
        for (const PlacedToken& token : tokenizer->encode_with_places(text)) {
          placed.push_back(token.id);
          EXPECT_GE(token.begin, 0) << text;
          EXPECT_GE(token.end, end) << text;
          end = token.end;
          if (token.id != id) continue;
          EXPECT_EQ(token.end, static_cast<int64_t>(text.find(kSymbols[i]) + kSymbols[i].size()));
        }
        EXPECT_EQ(placed, ids) << text;
        EXPECT_EQ(end, std::ssize(text));
      }
    }
    EXPECT_THAT(tokenizer->encode("< BT>"), testing::Not(Contains(tokenizer->symbols()[0])));
  }
  // Without symbols a text has the tokens that SentencePiece itself gives, with them too.
  if (options.type != "sentencepiece") return;
  sentencepiece::SentencePieceProcessor theirs;
  ASSERT_TRUE(theirs.LoadFromSerializedProto(trained->serialized()).ok());
  for (const std::string text : {"<BT> das ｟num｠ haus<BT> ", ">>deu<<das m２", " <BT>  alt"}) {
    std::vector<int> ids;
    ASSERT_TRUE(theirs.Encode(text, &ids).ok());
    EXPECT_EQ(trained->encode(text), std::vector<int32_t>(ids.begin(), ids.end())) << text;
  }
}

TEST(UserSymbolOptions, AreChecked) {
  const auto message = [](const std::vector<std::string>& symbols) {
    TokenizerOptions options;
    options.user_symbols = symbols;
    return error_of(ErrorKind::kConfig, [&] { options.validate(); });
  };
  EXPECT_EQ(message({"two words"}),
            "[tokenizer] user_symbols must have no white space or control characters, got 'two "
            "words'.");
  EXPECT_THAT(message({"a\u2581"}), HasSubstr("no white space"));
  EXPECT_THAT(message({""}), HasSubstr("must not be empty"));
  EXPECT_THAT(message({"<s>"}), HasSubstr("none that is reserved"));
  EXPECT_THAT(message({"x", "x"}), HasSubstr("each piece once"));
  TokenizerOptions options;
  options.user_symbol_pattern = "(";
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { options.validate(); }),
              HasSubstr("user_symbol_pattern must be a regular expression"));
}

class TwoSides : public testing::Test {
 protected:
  CorpusSpec pairs() {
    std::string source, target;
    for (int i = 0; i < 40; ++i) {
      source += "das ist ein haus, ｛N" + std::to_string(i % 3) + "｝ m²? und mehr\n";
      target += "五伃，伃匴吒 ｛N" + std::to_string(i % 3) + "｝ 100 m² ½ ™ … 典又？\n";
    }
    CorpusSpec spec;
    spec.source = folder_.write("source", source);
    spec.target = folder_.write("target", target);
    return spec;
  }
  TempFolder folder_;
};

class EachTypeOfTwoSides : public TwoSides, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, EachTypeOfTwoSides,
                         testing::Values("sentencepiece", "unigram", "bpe", "word"));

TEST_P(EachTypeOfTwoSides, OneVocabularyReadsBothAsTheyAreNormalised) {
  TokenizerOptions options = options_of(GetParam());
  options.vocab_size = std::string(GetParam()) == "unigram" ? 39 : 70;
  options.target_normalization = "identity";
  const TokenizerPair pair = train_tokenizers(options, {pairs()}, 1);
  EXPECT_FALSE(pair.one());
  EXPECT_TRUE(pair.shared());
  const std::string text = "五伃，伃匴吒 100 m² ½ ™ … 典又？";
  const std::string line = "五伃，伃匴吒 ｛N1｝ 100 m² ½ ™ … 典又？";
  EXPECT_EQ(pair.target->decode(pair.target->encode(line)), line);
  EXPECT_EQ(pair.source->encode("haus，"), pair.source->encode("haus,"));
  EXPECT_EQ(pair.source->encode("m²"), pair.source->encode("m2"));
  EXPECT_NE(pair.target->encode("m²"), pair.target->encode("m2"));
  EXPECT_EQ(pair.source->vocab_size(), pair.target->vocab_size());
  for (int32_t id = 0; id < pair.source->vocab_size(); ++id) {
    EXPECT_EQ(pair.source->piece(id), pair.target->piece(id));
  }
  // So they are after a checkpoint.
  const TokenizerPair again = load_tokenizers(pair.files());
  EXPECT_TRUE(again.shared());
  EXPECT_EQ(again.target->encode(text), pair.target->encode(text));
  EXPECT_EQ(again.source->encode(text), pair.source->encode(text));
}

TEST_F(TwoSides, OfOneNormalizationAreOneTokenizer) {
  for (const char* normalization : {"", "nmt_nfkc"}) {
    TokenizerOptions options = options_of("sentencepiece");
    options.target_normalization = normalization;
    const TokenizerPair pair = train_tokenizers(options, {pairs()}, 1);
    EXPECT_TRUE(pair.one());
    EXPECT_THAT(pair.files(), testing::ElementsAre(Pair("tokenizer.model", testing::_)));
  }
}

// A copy of a text: equal files of two vocabularies stay two.
TEST_F(TwoSides, ThatDoNotShareStayTwo) {
  CorpusSpec spec = pairs();
  spec.source = spec.target;
  TokenizerOptions options = options_of("sentencepiece");
  options.share = false;
  const TokenizerPair pair = train_tokenizers(options, {spec}, 1);
  EXPECT_EQ(pair.source->serialized(), pair.target->serialized());
  EXPECT_FALSE(load_tokenizers(pair.files()).shared());
}

TEST_F(TwoSides, APatternFindsThePlaceholdersOfTheData) {
  TokenizerOptions options = options_of("bpe");
  options.vocab_size = 64;
  options.user_symbols = {"<BT>"};
  options.user_symbol_pattern = "｛N\\d+｝";
  options.target_normalization = "identity";
  const TokenizerPair pair = train_tokenizers(options, {pairs()}, 1);
  for (const auto& side : {pair.source, pair.target}) {
    std::vector<std::string> symbols;
    for (const int32_t id : side->symbols()) symbols.push_back(side->piece(id));
    EXPECT_THAT(symbols, testing::ElementsAre("<BT>", "｛N0｝", "｛N1｝", "｛N2｝"));
    EXPECT_EQ(side->decode(side->encode("m ｛N2｝")), "m ｛N2｝");
  }
}

TEST_F(TwoSides, AreReadFromAFileEach) {
  TokenizerOptions own = options_of("bpe");
  own.share = false;
  const TokenizerPair pair = train_tokenizers(own, {pairs()}, 1);
  TokenizerOptions options = options_of("bpe");
  options.source_path = folder_.write("a.txt", pair.source->serialized());
  options.target_path = folder_.write("b.txt", pair.target->serialized());
  const TokenizerPair read = train_tokenizers(options, {pairs()}, 1);
  EXPECT_EQ(read.source->serialized(), pair.source->serialized());
  EXPECT_EQ(read.target->serialized(), pair.target->serialized());
  EXPECT_FALSE(read.shared());
  options.target_path = options.source_path;
  EXPECT_TRUE(train_tokenizers(options, {pairs()}, 1).one());
  options.share = false;
  EXPECT_FALSE(train_tokenizers(options, {pairs()}, 1).shared());
  options.target_path.clear();
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { options.validate(); }),
              HasSubstr("source.path must be there together with target.path"));
}

// The options with which marian-train makes a vocab.spm.
TEST_F(TwoSides, MarianVocabSpmHasNoBeginning) {
  folder_.write("text", read_file(pairs().source));
  const std::string arguments =
      "--model_prefix=" + folder_.path("vocab") + " --input=" + folder_.path("text") +
      " --bos_id=-1 --eos_id=0 --unk_id=1 --vocab_size=30 --hard_vocab_limit=false"
      " --minloglevel=9";
  ASSERT_TRUE(sentencepiece::SentencePieceTrainer::Train(arguments).ok());
  TokenizerOptions options;
  options.path = folder_.path("vocab.model");
  const TokenizerPair pair = train_tokenizers(options, {pairs()}, 1);
  const SpecialIds& special = pair.source->special();
  EXPECT_EQ(special.eos, 0);
  EXPECT_EQ(special.unk, 1);
  EXPECT_FALSE(special.pad);
  const PairRows rows(pair);
  EXPECT_EQ(rows.start, 0);
  EXPECT_TRUE(rows.source.before.empty());
  EXPECT_EQ(rows.source.after, std::vector<int32_t>{0});
  EXPECT_EQ(rows.target.after, std::vector<int32_t>{0});
  EXPECT_THAT(rows.banned, testing::ElementsAre(1)) << "eos may be written";
}

TEST(Words, AreTheMostFrequentOnes) {
  TokenizerOptions options = options_of("word");
  options.vocab_size = 8;
  const auto words = train(options, {"the cat, the dog", "the cat sat", "a cat 12"});
  ASSERT_EQ(words->vocab_size(), 8) << "four reserved ones, the space, and three words";
  EXPECT_EQ(words->piece(4), "\u2581");
  EXPECT_EQ(words->piece(5), "\u2581cat");
  EXPECT_EQ(words->piece(6), "\u2581the");
  EXPECT_EQ(words->encode("the cat ran"), (std::vector<int32_t>{6, 5, kUnkId}));
  EXPECT_EQ(words->decode({6, 5}), "the cat");
  options.vocab_size = 1000;
  const auto all = train(options, {"The cat, the dog's 12th."});
  const std::string text = "The cat, the dog's 12th.";
  EXPECT_EQ(all->decode(all->encode(text)), text);
  EXPECT_EQ(all->encode(text).size(), 10u) << "The cat , the dog ' s 12 th .";
  EXPECT_THAT(error_of(ErrorKind::kData,
                       [&] { load_tokenizer("tapestry words 1\nnormalization x\n", "w.txt"); }),
              HasSubstr("w.txt:2 must name a normalization"));
}

// The exported file, read as one of Hugging Face's, has our ids.
TEST(Words, GoOutAsWordLevel) {
  TokenizerOptions options = options_of("word");
  options.vocab_size = 1000;
  const std::vector<std::string> lines = {"The cat, the dog's 12th.", "Übel ½ m² (ja)!"};
  const auto words = train(options, lines);
  const TempFolder folder;
  folder.write("tokenizer.json", tokenizer_json(*words, {{}, {kEosId}}));
  const auto theirs = load_tokenizer(
      read_huggingface(folder.path("."), {.pad = kPadId, .bos = kBosId, .eos = kEosId}), "json");
  for (const std::string& line : {lines[0], lines[1], std::string("the  dog, m²x the!")}) {
    EXPECT_EQ(theirs->encode(line), words->encode(line)) << line;
    if (line.find('x') != std::string::npos) continue;  // unknown: theirs leaves it out
    EXPECT_EQ(theirs->decode(words->encode(line)), words->decode(words->encode(line))) << line;
  }
  TokenizerOptions symbols = options;
  symbols.user_symbols = {"<BT>"};
  const auto with_symbols = train(symbols, lines);
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { tokenizer_json(*with_symbols, {}); }),
              HasSubstr("symbols of the user, got 1 of them, '<BT>' the first"));
}

TEST(CharacterChangesTest, TellTheShareAndTheMostFrequentChange) {
  CharacterChanges changes;
  changes.add("五伃，伃又？", "五伃,伃又?");
  EXPECT_EQ(changes.characters(), 6);
  EXPECT_EQ(changes.changed(), 2);
  changes.add("a，b，c", "a,b,c");
  EXPECT_EQ(changes.characters(), 11);
  EXPECT_EQ(changes.changed(), 4);
  EXPECT_EQ(changes.most_frequent(), "'，' -> ','");
  EXPECT_DOUBLE_EQ(changes.share(), 4.0 / 11);
  CharacterChanges more;
  more.add("½ cup", "1⁄2 cup");
  EXPECT_EQ(more.changed(), 1);
  EXPECT_EQ(more.most_frequent(), "'½' -> '1⁄2'");
  CharacterChanges none;
  none.add("  two   spaces ", "two spaces");
  EXPECT_EQ(none.changed(), 0);
  EXPECT_EQ(none.most_frequent(), "");
  CharacterChanges lost;
  lost.add("ab\u200Bcd", "abcd");
  EXPECT_EQ(lost.changed(), 1);
  EXPECT_EQ(lost.characters(), 5);
}

}  // namespace
}  // namespace tapestry
