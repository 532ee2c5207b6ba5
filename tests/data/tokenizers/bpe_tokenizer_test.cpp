// What the byte-pair encoding of our own has besides what all tokenizers have (tokenizer_test.cpp).
#include <gmock/gmock.h>

#include "core/base/philox.h"
#include "data/files/utf8.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Tokenizer> train(TokenizerOptions options,
                                       const std::vector<std::string>& lines) {
  options.type = "bpe";
  return train_tokenizer(
      options,
      [&lines, next = size_t{0}](std::string& line) mutable {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      1);
}

std::shared_ptr<const Tokenizer> train(int64_t vocab_size, const std::vector<std::string>& lines) {
  TokenizerOptions options;
  options.vocab_size = vocab_size;
  return train(options, lines);
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> pieces;
  for (const int32_t id : tokenizer.encode(text)) pieces.push_back(tokenizer.piece(id));
  return pieces;
}

// (▁, a) has 4, (a, a) 2, (a, b) 2, (▁a, a) then 2, and so on; of equal ones the shorter goes
// first, then the first in the alphabet.
const std::vector<std::string> kTiny = {"aa ab aa", "ab"};
constexpr const char* kTinyFile =
    "tapestry bpe 1\n"
    "normalization nmt_nfkc\n"
    "byte_fallback false\n"
    "mask false\n"
    "sentinels 0\n"
    "characters 3\n"
    "U+0061\n"
    "U+0062\n"
    "U+2581\n"
    "merges 3\n"
    "\u2581 a\n"
    "\u2581a a\n"
    "\u2581a b\n";

TEST(BpeTokenizer, IsATextThatCanBeRead) {
  const auto tokenizer = train(4 + 3 + 3, kTiny);
  EXPECT_EQ(tokenizer->serialized(), kTinyFile);
  EXPECT_THAT(pieces(*tokenizer, "ab aa b ba"),
              ElementsAre("\u2581a"
                          "b",
                          "\u2581aa", "\u2581", "b", "\u2581", "b", "a"));
  EXPECT_EQ(tokenizer->encode("aa"), (std::vector<int32_t>{8}));
  const auto read = load_tokenizer(kTinyFile, "file");
  EXPECT_EQ(read->serialized(), kTinyFile);
  EXPECT_EQ(read->encode("ab aa b ba"), tokenizer->encode("ab aa b ba"));
  const TokenizerPair pair{read, read};
  EXPECT_THAT(pair.files(), ElementsAre(testing::Pair("tokenizer.txt", kTinyFile)));
}

TEST(BpeTokenizer, TakesNoFileThatIsCutShort) {
  TokenizerOptions options;
  options.vocab_size = 4 + 1 + 2 + 256 + 3 + 2;
  options.mask_piece = options.byte_fallback = true;
  options.sentinels = 2;
  const std::string bytes = train(options, kTiny)->serialized();
  EXPECT_NO_THROW(load_tokenizer(bytes, "t.txt"));
  for (size_t size = std::string("tapestry bpe ").size(); size < bytes.size(); ++size) {
    const std::string message =
        error_of(ErrorKind::kData, [&] { load_tokenizer(bytes.substr(0, size), "t.txt"); });
    EXPECT_THAT(message, HasSubstr("t.txt")) << size;
    EXPECT_THAT(message, HasSubstr("is cut short: it ends ")) << size;
  }
  EXPECT_EQ(error_of(ErrorKind::kData, [&] { load_tokenizer(bytes + "a b\n", "t.txt"); }),
            "[tokenizer] t.txt must end after line 12, got 4 bytes more.");
}

TEST(BpeTokenizer, DamagedFilesAreErrors) {
  const auto message = [](const std::string& from, const std::string& to) {
    std::string bytes = kTinyFile;
    bytes.replace(bytes.find(from), from.size(), to);
    return error_of(ErrorKind::kData, [&] { load_tokenizer(bytes, "t.txt"); });
  };
  EXPECT_EQ(
      message("bpe 1", "bpe 3"),
      "[tokenizer] t.txt:1 must be 'tapestry bpe 1' or 'tapestry bpe 2', the versions that are "
      "known, got 'tapestry bpe 3'.");
  EXPECT_EQ(message("nmt_nfkc", "nfc"),
            "[tokenizer] t.txt:2 must name a normalization, got 'nfc'.");
  EXPECT_EQ(message("fallback false", "fallback no"),
            "[tokenizer] t.txt:3 must say true or false, got 'byte_fallback no'.");
  EXPECT_EQ(message("mask false", "marks false"),
            "[tokenizer] t.txt:4 must give mask, got 'marks false'.");
  EXPECT_EQ(message("sentinels 0", "sentinels 10001"),
            "[tokenizer] t.txt:5 must give a number from 0 to 10000, got 'sentinels 10001'.");
  EXPECT_THAT(message("sentinels 0", "sentinels 0x"), HasSubstr("t.txt:5 must give a number"));
  EXPECT_THAT(message("sentinels 0", "sentinels -1"), HasSubstr("t.txt:5 must give a number"));
  EXPECT_EQ(message("U+0062", "U+0061"),
            "[tokenizer] t.txt:8 must name the next character, got 'U+0061'.");
  EXPECT_THAT(message("U+0062", "U+D800"), HasSubstr("got 'U+D800'."));
  EXPECT_THAT(message("U+0062", "b"), HasSubstr("got 'b'."));
  EXPECT_THAT(message("U+2581", "U+2582"), HasSubstr("U+2581"));
  EXPECT_THAT(message("characters 3", "characters 4"), HasSubstr("t.txt:10 must name the next"));
  EXPECT_EQ(message("\u2581 a\n", "\u2581 c\n"),
            "[tokenizer] t.txt:11 must name two pieces that are known by then, and a new pair, got "
            "'\u2581 c'.");
  EXPECT_THAT(message("\u2581a a", "\u2581 a"), HasSubstr("t.txt:12 must name two pieces"));
  EXPECT_THAT(message("\u2581a a", "\u2581aa"), HasSubstr("t.txt:12 must name two pieces"));
  EXPECT_THAT(message("\u2581a a", "\u2581a  a"), HasSubstr("t.txt:12 must name two pieces"));
  EXPECT_THAT(message("merges 3", "merges 2"), HasSubstr("must end after line 12"));
}

// Any other bytes give an Error or a tokenizer that works.
TEST(BpeTokenizer, NoDamageDoesMoreThanAnError) {
  const std::string bytes = kTinyFile;
  uint64_t draw = 0;
  const auto below = [&](uint64_t bound) { return philox_below({3, 0, 0}, draw++, bound); };
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (uint64_t n = 1 + below(3); n > 0; --n) {
      damaged[13 + below(bytes.size() - 13)] = static_cast<char>(below(256));
    }
    try {
      const auto tokenizer = load_tokenizer(damaged, "t.txt");
      tokenizer->decode(tokenizer->encode("aa ab \u00E9"));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << error.what();
    }
  }
}

TEST(BpeTokenizer, MergesNothingOverTheBordersOfWordsDigitsAndPunctuation) {
  std::vector<std::string> lines(50, "Haus12, Häuser! e\u0301te\u0301 (x2)... don't");
  const std::string limit = "the largest possible is ";
  const std::string message = error_of(ErrorKind::kConfig, [&] { train(1000, lines); });
  const auto tokenizer =
      train(std::stoll(message.substr(message.find(limit) + limit.size())), lines);
  for (int32_t id = 4; id < tokenizer->vocab_size(); ++id) {
    std::string piece = tokenizer->piece(id);
    if (piece.starts_with("\u2581")) piece.erase(0, 3);
    int letters = 0, digits = 0, others = 0;
    for (const char c : piece) {
      (std::isalpha(c) || (c & 0x80) != 0 ? letters : std::isdigit(c) ? digits : others) = 1;
    }
    EXPECT_LE(letters + digits + others, 1) << tokenizer->piece(id);
  }
  EXPECT_THAT(pieces(*tokenizer, "Haus12,"), ElementsAre("\u2581Haus", "12", ","));
  EXPECT_THAT(pieces(*tokenizer, "don't"), ElementsAre("\u2581don", "'", "t"));
}

TEST(BpeTokenizer, ARunOfUnknownCharactersIsOneUnk) {
  const auto tokenizer = train(4 + 3 + 3, kTiny);
  EXPECT_EQ(pieces(*tokenizer, "a犬犬 犬!b"),
            (std::vector<std::string>{"\u2581a", "<unk>", "\u2581", "<unk>", "b"}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a犬犬 b")), "a \u2047  b");
}

TEST(BpeTokenizer, CoverageLeavesTheRarestCharactersOut) {
  std::vector<std::string> lines(100, "ab ab ab");
  lines.push_back("ab c d");
  TokenizerOptions options;
  options.vocab_size = 8;
  options.character_coverage = 0.99;
  const auto tokenizer = train(options, lines);
  EXPECT_THAT(tokenizer->serialized(), HasSubstr("characters 3\nU+0061\nU+0062\nU+2581\n"));
  options.vocab_size = 10;
  options.character_coverage = 1;
  EXPECT_THAT(train(options, lines)->serialized(), HasSubstr("characters 5\n"));
}

// Any text comes back, but for the spaces that normalisation takes away.
TEST(BpeTokenizer, BytesLoseNothing) {
  TokenizerOptions options;
  options.vocab_size = 300;
  options.byte_fallback = true;
  options.normalization = "identity";
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) lines.push_back(concat("some words about number ", i));
  const auto tokenizer = train(options, lines);
  EXPECT_EQ(tokenizer->piece(4), "<0x00>");
  EXPECT_EQ(tokenizer->piece(259), "<0xFF>");
  uint64_t draw = 0;
  const auto below = [&](uint64_t bound) { return philox_below({5, 0, 0}, draw++, bound); };
  for (int i = 0; i < 300; ++i) {
    std::u32string characters = U"w";
    for (uint64_t n = below(20); n > 0; --n) {
      const uint64_t kind = below(4);
      char32_t c = static_cast<char32_t>(kind == 0   ? 'a' + below(26)
                                         : kind == 1 ? 0x80 + below(0x2500)
                                         : kind == 2 ? 0x10000 + below(0x100000)
                                                     : ' ');
      if (c == U' ' && characters.back() == U' ') c = U'.';
      characters.push_back(c);
    }
    characters.push_back(U'w');
    std::string text;
    for (const char32_t c : characters) append_utf8(text, c);
    const auto ids = tokenizer->encode(text);
    EXPECT_THAT(ids, testing::Not(testing::Contains(kUnkId)));
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  // Half a character in front of a piece.
  EXPECT_EQ(tokenizer->decode({4 + 0xC3, tokenizer->encode("some")[0]}), "\uFFFD some");
}

// More words than the cache has places, each of them twice.
TEST(BpeTokenizer, TheCacheChangesNothing) {
  const auto tokenizer = train(4 + 3 + 3, kTiny);
  std::vector<std::string> words;
  for (uint32_t i = 0; i < 50000; ++i) {
    std::string word;
    for (uint32_t bits = i + 1; bits > 0; bits >>= 1) word += "ab"[bits & 1];
    words.push_back(word);
  }
  words.push_back(std::string(1000, 'a'));
  std::vector<std::vector<int32_t>> first;
  for (const std::string& word : words) {
    first.push_back(tokenizer->encode(word));
    EXPECT_EQ(tokenizer->decode(first.back()), word);
  }
  for (size_t i = words.size(); i-- > 0;) EXPECT_EQ(tokenizer->encode(words[i]), first[i]);
}

TEST(BpeTokenizer, AMarkInTheTextIsASpace) {
  const auto tokenizer = train(4 + 3 + 3, kTiny);
  EXPECT_EQ(tokenizer->encode("aa\u2581"
                              "ab"),
            tokenizer->encode("aa ab"));
}

}  // namespace
}  // namespace tapestry
