// Alignments of words: the pairs of a line as Pharaoh, fast_align and eflomal write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// A word of the source and its translation, both from 0. Annotators tell sure links from possible
/// ones (Och and Ney 2003).
struct WordLink {
  int32_t source = 0;
  int32_t target = 0;
  bool sure = true;
  bool operator==(const WordLink&) const = default;
};

/// The links of a line: "0-0 1-2" are sure, "1?2" and "1p2" possible ones. Throws Error(kData) with
/// the place and the link that is not one, or that names a word which a text does not have: words
/// stand between spaces and tabs.
std::vector<WordLink> parse_word_links(std::string_view line, std::string_view source,
                                       std::string_view target, const std::string& place);

/// The tokens of linked words, all with all: source, target, source, target, ... in ascending
/// order, each pair once. A word without a token has no pair.
std::vector<int32_t> token_links(const std::vector<WordLink>& links,
                                 const std::vector<int32_t>& source_words,
                                 const std::vector<int32_t>& target_words);

/// The number of the word of each token that the tokenizer makes of the text, -1 for none.
std::vector<int32_t> words_of_tokens(const Tokenizer& tokenizer, const std::string& text);

}  // namespace tapestry
