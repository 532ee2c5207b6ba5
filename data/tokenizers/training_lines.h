// The lines from which a tokenizer learns; private to data/tokenizers/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace tapestry::tokenizers {

/// At most options.max_sentences lines of the texts (0: all), each with the same chance, drawn by
/// `seed`, in their order. Texts of several lines are split, lines of more than 4192 bytes come in
/// parts: SentencePiece ignores longer ones. Throws Error(kData) if there is none.
std::vector<std::string> training_lines(const TokenizerOptions& options, const LineSource& texts,
                                        uint64_t seed);

}  // namespace tapestry::tokenizers
