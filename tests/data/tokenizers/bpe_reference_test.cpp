// Byte-pair encoding (Sennrich et al. 2016), written with only maps and loops in the six steps
// numbered below, compared with both tokenizers that learn it.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "data/tokenizers/tokenizer.h"

namespace tapestry {
namespace {

using Symbols = std::vector<std::string>;

const std::vector<std::string> kText = {
    "the weaver threads the warp and the weaver beats the weft",
    "she sells the thread that her mother spun last winter",
    "a tapestry is woven thread by thread and row by row",
    "whoever weaves better weaves slower and rests longer",
    "the warp is white and the weft is blue the border is red",
    "winter after winter the weavers wove the same white border",
    "nothing is lost when a thread breaks it is tied and woven on"};

// A word is "▁" and its letters: the mark begins a word, as in SentencePiece.
Symbols letters_of(const std::string& word) {
  Symbols symbols = {"\u2581"};
  for (const char letter : word) symbols.push_back(std::string(1, letter));
  return symbols;
}

struct Bpe {
  std::map<Symbols, int> words;  // current symbols of a word -> how often the text has it
  Symbols merged;                // the merged symbols in order

  Bpe(const std::vector<std::string>& text, size_t merges) {
    // 1. Start with single characters.
    for (const std::string& line : text) {
      std::istringstream in(line);
      for (std::string word; in >> word;) ++words[letters_of(word)];
    }
    while (merged.size() < merges) {  // 6. Repeat until the vocabulary is complete.
      const auto best = most_frequent(count_pairs());
      merge(best.first, best.second);
      merged.push_back(best.first + best.second);
    }
  }

  using Pair = std::pair<std::string, std::string>;

  // 2. Count every pair of adjacent symbols. (5. Update counts: they are simply counted again.)
  std::map<Pair, int> count_pairs() const {
    std::map<Pair, int> counts;
    for (const auto& [symbols, times] : words) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        counts[{symbols[i], symbols[i + 1]}] += times;
      }
    }
    return counts;
  }

  // 3. The most frequent pair; among equals the shorter, then the first in the alphabet
  // (SentencePiece's choice; the paper has no rule).
  static Pair most_frequent(const std::map<Pair, int>& counts) {
    const auto before = [](const auto& a, const auto& b) {
      const std::string x = a.first.first + a.first.second, y = b.first.first + b.first.second;
      const size_t length_x = characters(x), length_y = characters(y);
      if (a.second != b.second) return a.second > b.second;
      return length_x != length_y ? length_x < length_y : x < y;
    };
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      if (before(*it, *best)) best = it;
    }
    return best->first;
  }

  // 4. Replace every occurrence of the pair with the merged symbol.
  void merge(const std::string& left, const std::string& right) {
    std::map<Symbols, int> after;
    for (const auto& [symbols, times] : words) after[apply(symbols, left, right)] += times;
    words = std::move(after);
  }

  static Symbols apply(const Symbols& symbols, const std::string& left, const std::string& right) {
    Symbols result;
    for (const std::string& symbol : symbols) {
      if (!result.empty() && result.back() == left && symbol == right) {
        result.back() += right;
      } else {
        result.push_back(symbol);
      }
    }
    return result;
  }

  static size_t characters(const std::string& utf8) {
    size_t count = 0;
    for (const char byte : utf8) count += (byte & 0xc0) != 0x80;
    return count;
  }
};

constexpr size_t kMerges = 60;

size_t alphabet() {
  std::set<char> letters;
  for (const std::string& line : kText) letters.insert(line.begin(), line.end());
  return letters.size();  // the space counts as "▁"
}

/// Both types of tokenizer.
class BpeReferenceTest : public testing::TestWithParam<const char*> {
 protected:
  BpeReferenceTest() : reference_(kText, kMerges) {
    TokenizerOptions options;
    options.type = GetParam();
    options.algorithm = "bpe";
    options.vocab_size = static_cast<int64_t>(kSpecials + kMerges + alphabet());
    tokenizer_ = train_tokenizer(
        options,
        [next = size_t{0}](std::string& line) mutable {
          if (next == kText.size()) return false;
          line = kText[next++];
          return true;
        },
        1);
  }

  static constexpr size_t kSpecials = 4;
  Bpe reference_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};
INSTANTIATE_TEST_SUITE_P(Types, BpeReferenceTest, testing::Values("sentencepiece", "bpe"));

TEST_P(BpeReferenceTest, TheSixStepsMakeTheTokenizersPieces) {
  // The four special pieces come first. Then SentencePiece has the merged symbols in order and the
  // characters; ours has the characters, which the merges are made of, and then these.
  const bool own = std::string(GetParam()) == "bpe";
  const size_t first = kSpecials + (own ? alphabet() : 0);
  for (size_t i = 0; i < kMerges; ++i) {
    EXPECT_EQ(tokenizer_->piece(static_cast<int32_t>(first + i)), reference_.merged[i])
        << "merge " << i;
  }
}

// A word that was not in the text: its letters, merged in the order in which the merges were
// learned.
TEST_P(BpeReferenceTest, ANewWordIsSplitByTheSameMerges) {
  for (const std::string word : {"thereafter", "weaves", "borders", "windbreaker", "s"}) {
    Symbols expected = letters_of(word);
    for (bool changed = true; changed;) {  // the earliest merge that applies
      changed = false;
      for (const std::string& symbol : reference_.merged) {
        for (size_t i = 0; i + 1 < expected.size() && !changed; ++i) {
          if (expected[i] + expected[i + 1] != symbol) continue;
          expected = Bpe::apply(expected, expected[i], expected[i + 1]);
          changed = true;
        }
        if (changed) break;
      }
    }
    Symbols actual;
    for (const int32_t id : tokenizer_->encode(word)) actual.push_back(tokenizer_->piece(id));
    EXPECT_EQ(actual, expected) << word;
  }
}

}  // namespace
}  // namespace tapestry
