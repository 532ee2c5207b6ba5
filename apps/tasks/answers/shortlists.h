// The shortlist of a search: from its file and the vocabularies of a model.
#pragma once

#include <string>

#include "data/lexicon/shortlist.h"
#include "data/tokenizers/tokenizer.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// Reads the file of options.shortlist. Lines with tokens that a vocabulary lacks are counted on
/// stderr. Throws as read_lexicon().
Shortlist read_shortlist(const SearchOptions& options, const TokenizerPair& tokenizers);

/// The same as CTranslate2's vmap.txt (data/lexicon/lexicon_file.h).
std::string vmap_of(const SearchOptions& options, const TokenizerPair& tokenizers);

/// The same of a lexicon that is there.
Shortlist make_shortlist(const Lexicon& lexicon, int64_t size, const TokenizerPair& tokenizers);

}  // namespace tapestry
