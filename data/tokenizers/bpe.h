// Byte-pair encoding (Gage 1994; for words Sennrich et al. 2016) on numbered symbols. The caller
// decides what a symbol is: a character, a byte or a merged piece. Private to data/.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/sampling/subword_sampler.h"

namespace tapestry::bpe {

using Symbol = int32_t;

struct Pair {
  Symbol left = 0;
  Symbol right = 0;
  auto operator<=>(const Pair&) const = default;
};

struct PairHash {
  size_t operator()(const Pair& pair) const {
    // The constant of splitmix64: the maps take the low bits.
    const uint64_t both = (uint64_t{static_cast<uint32_t>(pair.left)} << 32) |
                          uint64_t{static_cast<uint32_t>(pair.right)};
    const uint64_t mixed = both * 0x9E3779B97F4A7C15U;
    return mixed ^ (mixed >> 32);
  }
};

struct Word {
  std::vector<Symbol> symbols;
  int64_t count = 0;  ///< how often the text has it
};

/// A learned merge: the pair becomes `result`.
struct Merge {
  Pair pair;
  Symbol result = 0;
};

/// The learner's questions about the symbols.
class Alphabet {
 public:
  virtual ~Alphabet() = default;
  /// The symbol that replaces the pair: a new one, or an existing one with the same text. Empty:
  /// the vocabulary is complete.
  virtual std::optional<Symbol> merge(const Pair& pair) = 0;
  /// True if `a` goes before `b` when both are equally frequent: a strict order of the pairs.
  virtual bool goes_before(const Pair& a, const Pair& b) const = 0;
};

/// Merges the most frequent pair of neighbours everywhere, again and again, until the alphabet is
/// complete or no pair is left. The merges depend only on the words and the alphabet, not on the
/// order of the words.
///
/// A merge costs time in proportion to the words that hold its pair: each pair knows them.
std::vector<Merge> learn(std::vector<Word> words, Alphabet& alphabet);

/// Applies merges to new words. Safe to use from several threads at once.
class Merger {
 public:
  /// Earlier merges go first.
  explicit Merger(const std::vector<Merge>& merges);
  /// Merges the symbols of a word in place. In each step the earliest merge that applies is taken,
  /// of equal ones the leftmost. n symbols take O(n log n).
  void apply(std::vector<Symbol>& word) const;
  /// The same with dropout (Provilkov et al. 2020, algorithm 1): in each step each merge that
  /// applies is left out with probability p, and the earliest of the others is taken, until none is
  /// left. n symbols take O(n^2).
  void apply_with_dropout(std::vector<Symbol>& word, float p, RowDraws& draws) const;

 private:
  struct Rule {
    int32_t rank = 0;
    Symbol result = 0;
  };
  const Rule* find(Symbol left, Symbol right) const {
    const auto found = rules_.find({left, right});
    return found == rules_.end() ? nullptr : &found->second;
  }

  std::unordered_map<Pair, Rule, PairHash> rules_;
};

}  // namespace tapestry::bpe
