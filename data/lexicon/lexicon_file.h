// Lexicons and shortlists as files of text, which other programs read and write.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "data/lexicon/shortlist.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// What a file gave for a pair of vocabularies.
struct LexiconFile {
  Lexicon lexicon;
  int64_t lines = 0;
  int64_t unknown = 0;             ///< lines with a piece that a vocabulary lacks
  std::string first_unknown = {};  ///< "lex.s2t:7: 'piece'"
};

/// Reads Marian's lex.s2t, compressed or not: lines "target source probability", whose tokens are
/// pieces as the vocabularies have them. The source NULL gives the shares of the most frequent
/// target tokens; where no line has it these are the first ones of the vocabulary, as in Marian.
/// Throws Error(kData) with file and line for a line of another form, a probability outside [0, 1]
/// or a pair that came before, and if no line has known tokens.
LexiconFile read_lexicon(const std::string& path, const TokenizerPair& tokenizers);

/// Writes the same; each source's lines stand together, the most probable first. Returns the number
/// of target or source pieces that the format cannot hold (with white space, or NULL), whose lines
/// are missing.
int64_t write_lexicon(const Lexicon& lexicon, const TokenizerPair& tokenizers, std::ostream& out);

/// Writes CTranslate2's vmap.txt: lines of a source piece, a tab and target pieces between spaces;
/// the empty source has those of all sources. Returns as write_lexicon().
int64_t write_vmap(const Shortlist& shortlist, const TokenizerPair& tokenizers, bool one_vocabulary,
                   std::ostream& out);

}  // namespace tapestry
