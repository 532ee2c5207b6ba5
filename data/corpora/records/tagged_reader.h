// Sentences whose words have a tag each, such as the names of people and places.
//
//  conll  A line for each word, its columns between spaces or tabs; a blank line ends a sentence.
//         Lines whose first column is -DOCSTART- are passed over (Tjong Kim Sang and De Meulder
//         2003).
//  jsonl  A list of words and a list of tags in each object.
//  tsv, csv  A column of words and one of tags, with spaces between them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpora/corpus.h"

namespace tapestry {

/// A word of a sentence: the bytes [begin, end) of its text. The tag is part of a TextPair.
struct TaggedWord {
  int64_t begin = 0, end = 0;
  std::string_view tag;
};

/// The sentence as a pair: words with a space between them as the source. words_of() reads the
/// target again. Sentences of unequal lists, or with empty words or tags, are malformed.
std::unique_ptr<PairReader> open_tagged(const CorpusSpec& spec);

/// The words of a pair of open_tagged(), with their tags.
std::vector<TaggedWord> words_of(const TextPair& pair);

/// A pair of these words, all with this tag. Throws Error(kRuntime) for an empty or unequal list.
TextPair tagged_pair(std::span<const std::string> words, std::span<const std::string> tags,
                     const std::string& place);

}  // namespace tapestry
