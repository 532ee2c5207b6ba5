// Tokens that a tokenizer.json cuts out of a text before anything else; private to data/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/parts/part.h"

namespace tapestry::tokenizers {

struct AddedToken {
  explicit AddedToken(const Part& part);

  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< not inside a word
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< and behind it
  bool normalized = true;    ///< found in the normalised text
  bool special = false;      ///< no text: decoding skips it
};

/// A part of a text: a token, or the text between tokens.
struct TextSection {
  std::string_view text;
  int32_t id = -1;  ///< of the token; -1: text
};

/// Finds the leftmost token, and the longest of those, again and again.
class TokenFinder {
 public:
  /// `content` may differ from that of the token: its normalised form.
  void add(const AddedToken& token, const std::string& content);
  /// Adds a token that may stand anywhere and strips nothing beside it.
  void add(int32_t id, const std::string& content);
  bool empty() const { return patterns_.empty(); }

  /// The sections of a text; none is empty.
  std::vector<TextSection> sections(std::string_view text) const;

 private:
  struct Pattern {
    size_t bytes;
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  void add_pattern(const std::string& content, const Pattern& pattern);
  const Pattern* longest_at(std::string_view rest) const;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  // By content. Vocabularies have had thousands of them with few lengths.
  std::unordered_map<std::string, Pattern, Hash, std::equal_to<>> patterns_;
  std::vector<size_t> lengths_[256];  // of those that begin with the byte, descending
};

}  // namespace tapestry::tokenizers
