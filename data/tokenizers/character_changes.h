// Changes of a text's characters by encoding and decoding: a model cannot learn to write what its
// tokenizer rewrites.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// Sums over texts. The number of spaces (U+0020) in a row or at the ends does not count.
class CharacterChanges {
 public:
  void add(std::string_view before, std::string_view after);
  /// Adds a text and its encoded and decoded form.
  void add(const Tokenizer& tokenizer, std::string_view text) {
    add(text, tokenizer.decode(tokenizer.encode(text)));
  }

  int64_t characters() const { return characters_; }  ///< of the texts before
  int64_t changed() const { return changed_; }        ///< of these
  double share() const {
    return characters_ == 0 ? 0 : static_cast<double>(changed_) / static_cast<double>(characters_);
  }
  /// "'，' -> ','", the first of equally frequent ones; empty: nothing changed.
  std::string most_frequent() const;

 private:
  using Change = std::pair<std::u32string, std::u32string>;

  void note(std::u32string_view before, std::u32string_view after);

  int64_t characters_ = 0;
  int64_t changed_ = 0;
  std::map<Change, int64_t> counts_;
};

}  // namespace tapestry
