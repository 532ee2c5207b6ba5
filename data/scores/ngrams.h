// Words and n-grams of the sentences that metrics compare. Private to data/scores.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tapestry::scores {

using Symbols = std::u32string;
using Words = std::vector<std::u32string_view>;  ///< parts of a text that outlives them

/// Words between white space.
Words split_words(std::u32string_view text);

/// Code points of `text`, in lower case if `lowercase`.
Symbols symbols_of(std::string_view text, bool lowercase);

/// Gives each word a number, so that a sentence of words becomes a sequence of symbols. The texts
/// of the words must outlive it.
class WordIds {
 public:
  Symbols number(const Words& words);

 private:
  std::unordered_map<std::u32string_view, char32_t> ids_;
};

/// n-grams of order `order` in `symbols` symbols.
inline size_t ngrams_in(size_t symbols, int order) {
  const auto size = static_cast<size_t>(order);
  return symbols < size ? 0 : symbols - size + 1;
}

/// Numbers the n-grams of a few sequences: equal n-grams get equal numbers. An n-gram is a number
/// and one more symbol, so each costs one look-up of 64 bits whatever its order.
class NgramIds {
 public:
  /// `symbols` in all sequences together.
  NgramIds(size_t symbols, int orders);

  /// The n-grams of orders 1 to `orders`, order by order, ngrams_in() of each.
  std::vector<uint32_t> list(const Symbols& symbols);

  /// Numbers are below this.
  size_t size() const { return next_; }

 private:
  uint32_t number(uint32_t prefix, char32_t symbol);

  struct Slot {
    uint64_t key = 0;  // 0: free
    uint32_t id = 0;
  };
  int orders_;
  int shift_;
  std::vector<Slot> slots_;
  uint32_t next_ = 1;  // 0 is the prefix of single symbols
};

/// "tapestry-0.1.0"
std::string version();

/// printf("%.*f")
std::string fixed(double value, int digits);

}  // namespace tapestry::scores
