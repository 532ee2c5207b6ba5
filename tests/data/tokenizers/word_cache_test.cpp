// Tokens of a text word by word: those of SentencePiece for the whole text, whatever came before.
#include "data/tokenizers/word_cache.h"

#include <gmock/gmock.h>
#include <sentencepiece_processor.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "core/base/philox.h"
#include "data/files/text.h"
#include "data/files/utf8.h"
#include "data/tokenizers/piece_lattice.h"
#include "data/tokenizers/sentencepiece_model.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using tokenizers::WordCache;

TEST(WordCaches, ForgetAllWordsAndLearnThemAgain) {
  WordCache cache;
  WordCache::Entry entry;
  const std::vector<int32_t> ids = {3, 4};
  for (int time = 0; time < 2; ++time) {
    EXPECT_FALSE(cache.find("word", 0, entry));
    cache.put("word", 0, ids);
    ASSERT_TRUE(cache.find("word", 0, entry));
    EXPECT_EQ(std::vector<int32_t>(entry.ids().begin(), entry.ids().end()), ids);
    cache.clear();
  }
}

TEST(WordCaches, GiveBackWhatTheyKeep) {
  WordCache cache;
  WordCache::Entry entry;
  const auto word = [](int i) {
    return std::string(static_cast<size_t>(i % 57), 'a') + std::to_string(i);
  };
  const auto ids = [](int i) { return std::vector<int32_t>(static_cast<size_t>(i % 16), i); };
  for (int i = 0; i < 5000; ++i) {
    cache.put(word(i), static_cast<uint8_t>(i % 2), ids(i), static_cast<uint8_t>(i % 5));
    const bool fits =
        word(i).size() <= WordCache::kLongestWord && ids(i).size() <= WordCache::kMostIds;
    ASSERT_EQ(cache.find(word(i), static_cast<uint8_t>(i % 2), entry), fits) << i;
    if (!fits) continue;
    EXPECT_EQ(std::vector<int32_t>(entry.ids().begin(), entry.ids().end()), ids(i));
    EXPECT_EQ(entry.note(), i % 5);
    EXPECT_FALSE(cache.find(word(i), static_cast<uint8_t>(1 - i % 2), entry));
  }
  EXPECT_FALSE(cache.find("", 0, entry));
  EXPECT_FALSE(cache.find(std::string_view("a\0", 2), 0, entry));
}

TEST(WordCaches, NeverGiveHalfAWord) {
  WordCache cache;
  std::atomic<bool> stop{false};
  std::atomic<int64_t> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      WordCache::Entry entry;
      for (int i = t; !stop; ++i) {
        const std::string word = "word" + std::to_string(i % 50);
        cache.put(word, 0, std::vector<int32_t>(static_cast<size_t>(1 + i % 14), i % 50));
        if (!cache.find(word, 0, entry)) continue;
        ++found;
        for (const int32_t id : entry.ids()) {
          if (id != i % 50) return stop.store(true), ADD_FAILURE() << id, void();
        }
      }
    });
  }
  while (found < 300000 && !stop) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::string> english_lines() {
  std::vector<std::string> lines;
  for (const char* file : {"README.md", ".github/CONTRIBUTING.md", "tests/bench/README.md"}) {
    LineReader reader(project_file(file));
    for (std::string line; reader.next(line);) lines.push_back(line);
  }
  return lines;
}

// A text of characters that tokenizers and Unicode trip over.
std::string hostile_text(uint32_t number) {
  static const std::vector<std::string> kParts = {
      " ",
      " ",
      " ",
      "  ",
      "\t",
      "\n",
      "\r",
      "\v",
      "a",
      "the",
      "The",
      "dog",
      "Straße",
      "ä",
      "a\xCC\x88",
      "\xCC\x88",
      "e\xCC\x81\xCC\xA7",
      "\xE2\x96\x81",
      "\xE2\x96\x81 ",
      " \xE2\x96\x81",
      "\xE3\x80\x80",
      "\xC2\xA0",
      "\xE2\x80\xAF",
      "\xE2\x80\x8B",
      "\xE2\x80\x8D",
      "\xEF\xBB\xBF",
      "\xC2\xAD",
      "\x01",
      "\x1F",
      "\x7F",
      "\xC2\x85",
      "\xE2\x80\xA8",
      "犬",
      "犬犬犬",
      "Ｆｕｌｌ",
      "ﬁ",
      "①",
      "½",
      "²",
      "…",
      "¨",
      " ¨",
      "¨ ",
      "΅",
      "\xF0\x9F\x98\x80",
      "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9",
      "\xEE\x80\x80",
      "<s>",
      "</s>",
      "<unk>",
      "<pad>",
      "<mask>",
      "<extra_id_0>",
      "<0x41>",
      "각",
      "\xE1\x84\x80\xE1\x85\xA1",
      "नमस्ते",
      "שלום",
      "\xE2\x80\x8F",
      "\xFF",
      "\xC3",
      "\xE2\x96",
      "～",
      "1,000.5",
      "don't",
      "x-y",
      "supercalifragilisticexpialidociousdonaudampfschifffahrtsgesellschaft",
      "aaaaaaaaaaaaaaaa",
      "\xEF\xBF\xBD"};
  std::string text;
  const PhiloxKey key{11, number, 3};
  const uint64_t parts = philox_below(key, 0, 30);
  for (uint64_t i = 1; i <= parts; ++i) {
    if (philox_below(key, 1000 + i, 8) == 0) {  // any character but a surrogate
      auto c = static_cast<char32_t>(
          philox_below(key, 2000 + i, philox_below(key, 3000 + i, 2) == 0 ? 0x3000 : 0x10FFFF));
      if (c == 0 || (c >= 0xD800 && c < 0xE000)) c = 'q';
      append_utf8(text, c);
    } else {
      text += kParts[philox_below(key, i, kParts.size())];
    }
  }
  return text;
}

struct Case {
  const char* algorithm;
  const char* normalization;
  bool byte_fallback = false;
  double coverage = 1.0;
};

class WholeLines : public testing::TestWithParam<Case> {
 protected:
  std::shared_ptr<const Tokenizer> train(const std::vector<std::string>& lines) {
    TokenizerOptions options;
    options.algorithm = GetParam().algorithm;
    options.normalization = GetParam().normalization;
    options.byte_fallback = GetParam().byte_fallback;
    options.character_coverage = GetParam().coverage;
    options.vocab_size = GetParam().byte_fallback ? 700 : 450;
    options.mask_piece = true;
    options.sentinels = 2;
    return train_tokenizer(
        options,
        [&lines, next = size_t{0}](std::string& line) mutable {
          if (next == lines.size()) return false;
          line = lines[next++];
          return true;
        },
        1);
  }
};

void expect_equal_ids(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  sentencepiece::SentencePieceProcessor whole;
  ASSERT_TRUE(whole.LoadFromSerializedProto(tokenizer.serialized()).ok());
  const auto expected = [&](const std::string& text) {
    std::vector<int> ids;
    EXPECT_TRUE(whole.Encode(text, &ids).ok());
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  // Behind a character without a piece, a text continues a word.
  const std::string stranger = "\xEE\x80\x80";
  const std::vector<int32_t> before = expected(stranger);
  for (const int round : {1, 2}) {  // words are new, then known
    for (const std::string& text : texts) {
      ASSERT_EQ(tokenizer.encode(text), expected(text))
          << round << ": " << testing::PrintToString(text);
      std::vector<int32_t> continued = expected(stranger + text);
      if (continued.size() < before.size() ||
          !std::equal(before.begin(), before.end(), continued.begin())) {
        continued = expected(text);
      } else {
        continued.erase(continued.begin(), continued.begin() + std::ssize(before));
      }
      ASSERT_EQ(tokenizer.encode_continuation(text), continued) << testing::PrintToString(text);
    }
  }
}

TEST_P(WholeLines, HaveTheTokensOfTheirWords) {
  const std::vector<std::string> lines = english_lines();
  std::vector<std::string> texts = lines;
  for (uint32_t i = 0; i < 2000; ++i) texts.push_back(hostile_text(i));
  std::string all;
  for (const std::string& line : lines) {
    all += line + (all.size() % 3 == 0 ? "\n" : " ");
    if (all.size() > 30000) break;
  }
  texts.push_back(all);  // so long that the sums of a unigram model lose digits
  texts.emplace_back(3000, 'x');
  texts.emplace_back(3000, ' ');
  texts.back() += "the";
  expect_equal_ids(*train(lines), texts);
}

INSTANTIATE_TEST_SUITE_P(
    All, WholeLines,
    testing::Values(Case{"bpe", "nmt_nfkc"}, Case{"bpe", "nmt_nfkc_cf"}, Case{"bpe", "nfkc"},
                    Case{"bpe", "nfkc_cf"}, Case{"bpe", "identity"}, Case{"bpe", "nmt_nfkc", true},
                    Case{"unigram", "nmt_nfkc"}, Case{"unigram", "nmt_nfkc_cf"},
                    Case{"unigram", "nfkc"}, Case{"unigram", "nfkc_cf"},
                    Case{"unigram", "identity"}, Case{"unigram", "nmt_nfkc", true},
                    Case{"bpe", "nmt_nfkc", false, 0.98}, Case{"unigram", "nmt_nfkc", false, 0.98},
                    Case{"char", "nmt_nfkc"}),
    [](const auto& info) {
      return std::string(info.param.algorithm) + "_" + info.param.normalization +
             (info.param.byte_fallback ? "_bytes" : "") +
             (info.param.coverage < 1 ? "_covered" : "");
    });

std::shared_ptr<const Tokenizer> small_tokenizer(const char* algorithm) {
  TokenizerOptions options;
  options.algorithm = algorithm;
  options.vocab_size = 300;
  return train_tokenizer(
      options,
      [lines = english_lines(), next = size_t{0}](std::string& line) mutable {
        if (next == lines.size()) return false;
        line = lines[next++];
        return true;
      },
      1);
}

// A field of a protobuf. One that follows a model changes its fields, or adds a piece.
std::string field(char number, const std::string& inner) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(inner.size()) +
         inner;
}

std::string piece(const std::string& text, char type, float score = 0) {
  std::string bytes(sizeof(score), '\0');
  std::memcpy(bytes.data(), &score, sizeof(score));
  return field(1, field(1, text) + "\x15" + bytes + "\x18" + type);
}

// The best and the second best of all ways to cut a text.
void cut_all(const std::map<std::string, double>& scores, const std::string& text, double score,
             std::multiset<double>& found) {
  if (text.empty()) found.insert(score);
  for (const auto& [candidate, value] : scores) {
    if (text.starts_with(candidate)) {
      cut_all(scores, text.substr(candidate.size()), score + value, found);
    }
  }
}

TEST(Lattices, KnowHowFarTheTwoBestPathsAreApart) {
  std::map<std::string, double> scores;
  std::string bytes;
  const auto add = [&](const std::string& text, float score) {
    scores[text] = static_cast<double>(score);
    bytes += piece(text, 1, score);
  };
  add("a", -1.5F), add("b", -2.25F), add("ab", -3.5F), add("aba", -5), add("bb", -4), add("ä", -2);
  const tokenizers::PieceLattice lattice{SentencePieceModel::parse(bytes, "model")};
  EXPECT_EQ(lattice.largest_score(), 5);
  for (const std::string text : {"ab", "aba", "bbbb", "abababba", "äabä", "aäbbbab"}) {
    std::multiset<double> found;
    cut_all(scores, text, 0, found);
    ASSERT_GE(found.size(), 2U);
    EXPECT_NEAR(lattice.margin(text), *found.rbegin() - *std::next(found.rbegin()), 1e-12) << text;
  }
  EXPECT_TRUE(std::isinf(lattice.margin("a")));
  EXPECT_TRUE(std::isinf(lattice.margin("")));
  EXPECT_EQ(lattice.margin("qab"), 0.25);  // q has no piece
}

// Two ways whose scores are equal but for rounding: what stands before decides between them.
TEST(NearTies, AreThoseOfTheWholeLine) {
  const std::string bytes = small_tokenizer("unigram")->serialized() + piece("JQ", 1, -1.1F) +
                            piece("XQ", 1, -2.3F) + piece("JQXQ", 1, -3.4F);
  const auto tokenizer = load_tokenizer(bytes, "ties");
  std::vector<std::string> texts;
  std::string before;
  for (int i = 0; i < 150; ++i) {
    texts.push_back(before + "JQXQ");
    texts.push_back(before + "aJQXQb JQXQ");
    before += i % 2 == 0 ? "the " : "a model ";
  }
  expect_equal_ids(*tokenizer, texts);
  std::set<int32_t> last;
  for (const std::string& text : texts) last.insert(tokenizer->encode(text).back());
  EXPECT_EQ(last.size(), 2U);  // else this shows nothing
}

TEST(ForeignModels, AreEncodedAsWholeLinesWhereWordsDoNotDo) {
  const auto plain = small_tokenizer("bpe");
  const std::string& bytes = plain->serialized();
  EXPECT_TRUE(SentencePieceModel::parse(bytes, "model").encodes_word_by_word());
  std::vector<std::string> texts = {"a dog  on the mat ", " the the  the", "of the",
                                    "in the in the of the"};
  for (uint32_t i = 0; i < 300; ++i) texts.push_back(hostile_text(i));
  for (const std::string& extra : {field(3, std::string("\x18\0", 2)),  // no space in front
                                   field(3, std::string("\x20\0", 2)),  // extra spaces stay
                                   field(3, std::string("\x28\0", 2)),  // spaces are not escaped
                                   field(2, std::string("\xC0\x01\x01", 3)),  // spaces end words
                                   piece("\xE2\x96\x81of\xE2\x96\x81the", 1),
                                   piece("\xE2\x96\x81the\xE2\x96\x81", 1), piece("e d", 4)}) {
    EXPECT_FALSE(SentencePieceModel::parse(bytes + extra, "model").encodes_word_by_word());
    expect_equal_ids(*load_tokenizer(bytes + extra, "foreign"), texts);
  }
}

}  // namespace
}  // namespace tapestry
