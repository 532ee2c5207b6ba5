// The places of tokens in a text, and the words that they belong to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// The bytes [begin, end) of each word: what stands between spaces and tabs.
std::vector<std::pair<size_t, size_t>> word_places(std::string_view text);

/// A text as its reader sees it, with the bytes that each token stands for.
struct PlacedText {
  std::string text = {};
  std::vector<PlacedToken> tokens = {};

  std::vector<int32_t> ids() const;
};
/// encode() with places in the text, even if the tokenizer has none.
PlacedText placed_source(const Tokenizer& tokenizer, const std::string& text);
/// The decoded tokens, each with the place of its characters. A token that is only a part of a
/// character has no bytes unless it is the last part.
PlacedText placed_output(const Tokenizer& tokenizer, const std::vector<int32_t>& ids);

/// The number of the word, from 0, that each token belongs to. Words are separated by spaces and
/// tabs of the text; other characters that the tokenizer takes for a space are inside a word. -1
/// for a token that is only white space.
std::vector<int32_t> word_numbers(const Tokenizer& tokenizer, const PlacedText& text);

}  // namespace tapestry
