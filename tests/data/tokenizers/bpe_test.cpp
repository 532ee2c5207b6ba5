// The learner and the merger against loops that look at everything again after each merge.
#include "data/tokenizers/bpe.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "core/base/philox.h"

namespace tapestry::bpe {
namespace {

// Symbols are texts; a text has one symbol, however it is made.
class BpeTexts : public Alphabet {
 public:
  BpeTexts(const std::string& letters, size_t most) : most_(most) {
    for (const char letter : letters) add(std::string(1, letter));
  }
  Symbol add(const std::string& text) {
    const auto [found, is_new] = ids_.emplace(text, static_cast<Symbol>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return found->second;
  }
  std::optional<Symbol> merge(const Pair& pair) override {
    if (texts_.size() >= most_) return std::nullopt;
    return add(of(pair));
  }
  bool goes_before(const Pair& a, const Pair& b) const override {
    return std::pair(of(a), a.left) < std::pair(of(b), b.left);
  }
  std::string of(const Pair& pair) const {
    return texts_[static_cast<size_t>(pair.left)] + texts_[static_cast<size_t>(pair.right)];
  }
  size_t size() const { return texts_.size(); }

 protected:
  size_t most_;

 private:
  std::vector<std::string> texts_;
  std::map<std::string, Symbol> ids_;
};

void replace(std::vector<Symbol>& word, const Merge& merge) {
  std::vector<Symbol> merged;
  for (size_t i = 0; i < word.size(); ++i) {
    const bool here =
        i + 1 < word.size() && word[i] == merge.pair.left && word[i + 1] == merge.pair.right;
    merged.push_back(here ? merge.result : word[i]);
    i += here ? 1 : 0;
  }
  word = merged;
}

std::vector<Merge> learn_slowly(std::vector<Word> words, Alphabet& alphabet) {
  std::vector<Merge> merges;
  std::set<Pair> seen;
  while (true) {
    std::map<Pair, int64_t> counts;
    for (const Word& word : words) {
      for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
        counts[{word.symbols[i], word.symbols[i + 1]}] += word.count;
      }
    }
    if (counts.empty()) return merges;
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      const bool better = it->second != best->second ? it->second > best->second
                                                     : alphabet.goes_before(it->first, best->first);
      if (better) best = it;
    }
    const auto result = alphabet.merge(best->first);
    if (!result) return merges;
    const Merge merge{best->first, *result};
    if (seen.insert(merge.pair).second) merges.push_back(merge);
    for (Word& word : words) replace(word.symbols, merge);
  }
}

struct Draws {
  uint64_t seed, at = 0;
  uint64_t below(uint64_t bound) { return philox_below({seed, 0, 0}, at++, bound); }
};

std::vector<Symbol> random_word(Draws& draws, uint64_t letters, uint64_t longest) {
  std::vector<Symbol> word(1 + draws.below(longest));
  for (Symbol& symbol : word) symbol = static_cast<Symbol>(draws.below(letters));
  return word;
}

std::vector<std::tuple<Symbol, Symbol, Symbol>> rows(const std::vector<Merge>& merges) {
  std::vector<std::tuple<Symbol, Symbol, Symbol>> rows;
  for (const Merge& merge : merges) {
    rows.emplace_back(merge.pair.left, merge.pair.right, merge.result);
  }
  return rows;
}

// As BpeTexts, but the order of the letters does not matter: many pairs make one symbol, and a pair
// comes back after it was merged.
class Bags : public BpeTexts {
 public:
  using BpeTexts::BpeTexts;
  std::optional<Symbol> merge(const Pair& pair) override {
    std::string bag = of(pair);
    std::sort(bag.begin(), bag.end());
    return size() < most_ ? std::optional(add(bag)) : std::nullopt;
  }
};

template <class Alphabet>
size_t expect_equal_merges(uint64_t seed) {
  Draws draws{seed};
  const std::string letters = std::string("abcd").substr(0, 1 + draws.below(4));
  std::vector<Word> words;
  for (uint64_t n = 1 + draws.below(40); n > 0; --n) {
    words.push_back(
        {random_word(draws, letters.size(), 14), static_cast<int64_t>(1 + draws.below(6))});
  }
  const size_t most = letters.size() + draws.below(150);
  Alphabet fast_texts(letters, most), slow_texts(letters, most);
  const auto fast = learn(words, fast_texts);
  const auto slow = learn_slowly(words, slow_texts);
  EXPECT_EQ(rows(fast), rows(slow)) << "seed " << seed;
  EXPECT_EQ(fast_texts.size(), slow_texts.size());
  return fast.size() - (fast_texts.size() - letters.size());
}

// Few letters: pairs of one letter ("aaa"), and many equal counts.
TEST(BpeLearner, EqualsTheSlowLoopsOnRandomWords) {
  for (uint64_t seed = 0; seed < 60; ++seed) expect_equal_merges<BpeTexts>(seed);
}

TEST(BpeLearner, EqualsThemWhereTwoPairsMakeOneSymbol) {
  size_t repeated = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) repeated += expect_equal_merges<Bags>(seed);
  EXPECT_GT(repeated, 100u);
}

TEST(BpeLearner, DoesNotDependOnTheOrderOfTheWords) {
  Draws draws{7};
  std::vector<Word> words;
  for (int i = 0; i < 100; ++i) words.push_back({random_word(draws, 4, 10), 1 + i % 5});
  BpeTexts forward("abcd", 200), backward("abcd", 200);
  const auto one = learn(words, forward);
  std::reverse(words.begin(), words.end());
  EXPECT_EQ(rows(one), rows(learn(words, backward)));
}

TEST(BpeLearner, StopsWhereNoPairIsLeft) {
  BpeTexts texts("ab", 100);
  const auto merges = learn({{{0, 1}, 3}, {{1}, 9}, {{}, 1}}, texts);
  EXPECT_THAT(rows(merges), testing::ElementsAre(std::tuple(0, 1, 2)));
  BpeTexts nothing("ab", 100);
  EXPECT_TRUE(learn({}, nothing).empty());
}

TEST(BpeMerger, TakesTheEarliestMergeAndOfEqualOnesTheLeftmost) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Draws draws{seed};
    std::vector<Word> words;
    for (int i = 0; i < 30; ++i) words.push_back({random_word(draws, 3, 12), 1});
    BpeTexts texts("abc", 3 + draws.below(120));
    const auto merges = learn(words, texts);
    const Merger merger(merges);
    for (int i = 0; i < 50; ++i) {
      std::vector<Symbol> expected = random_word(draws, 4, 30);  // 3: no letter of the text
      std::vector<Symbol> actual = expected;
      for (bool changed = true; changed;) {
        changed = false;
        for (const Merge& merge : merges) {
          for (size_t at = 0; at + 1 < expected.size() && !changed; ++at) {
            if (Pair{expected[at], expected[at + 1]} != merge.pair) continue;
            expected[at] = merge.result;
            expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(at) + 1);
            changed = true;
          }
          if (changed) break;
        }
      }
      merger.apply(actual);
      EXPECT_EQ(actual, expected);
    }
  }
}

TEST(BpeMerger, LeavesShortWordsAlone) {
  const Merger merger({{{0, 1}, 2}});
  std::vector<Symbol> none, one = {1};
  merger.apply(none);
  merger.apply(one);
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(one, testing::ElementsAre(1));
}

// A scan for each merge would take minutes.
TEST(BpeMerger, TakesALongWordWithoutScanningItForEachMerge) {
  const Merger merger({{{0, 0}, 1}, {{1, 1}, 2}, {{2, 2}, 3}});
  std::vector<Symbol> word(size_t{1} << 20, 0);
  merger.apply(word);
  EXPECT_EQ(word, std::vector<Symbol>(size_t{1} << 17, 3));
}

}  // namespace
}  // namespace tapestry::bpe
