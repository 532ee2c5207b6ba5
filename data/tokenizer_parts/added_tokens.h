// Tokens that a tokenizer.json cuts out of a text before anything else; private to data/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer_parts/part.h"

namespace tapestry::tokenizers {

struct AddedToken {
  explicit AddedToken(const Part& part);

  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< not inside a word
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< and behind it
  bool normalized = true;    ///< stands in the normalised text
  bool special = false;      ///< no text: decoding skips it
};

/// A part of a text: a token, or what stands between tokens.
struct TextSection {
  std::string_view text;
  int32_t id = -1;  ///< of the token; -1: text
};

/// Finds the leftmost, and of those the longest, again and again.
class TokenFinder {
 public:
  /// `content` may differ from that of the token: its normalised form.
  void add(const AddedToken& token, const std::string& content);
  bool empty() const { return patterns_.empty(); }

  /// The sections of a text; none is empty.
  std::vector<TextSection> sections(std::string_view text) const;

 private:
  struct Pattern {
    std::string content;
    int32_t id;
    bool single_word, lstrip, rstrip;
  };
  const Pattern* longest_at(std::string_view rest) const;

  std::vector<Pattern> patterns_;  // the longest first
  bool begins_[256] = {};          // whether a pattern begins with the byte
};

}  // namespace tapestry::tokenizers
