// Text in which "<mask>" and "<extra_id_0>" stand for holes, as users of BART and T5 write it.
#pragma once

#include <memory>

#include "data/tokenizer.h"

namespace tapestry {

/// The tokenizer with the mask and the sentinels that it has as words: encode() makes special ids
/// of "<mask>" and "<extra_id_i>", and decode() writes them. Text behind such a word goes on as in
/// encode_continuation(): "un<mask>able" has no word boundary. Of a tokenizer that finds special
/// tokens in a text by itself, "<mask>" and its own "[MASK]" are the same word.
std::shared_ptr<const Tokenizer> with_special_words(std::shared_ptr<const Tokenizer> tokenizer);

/// Both sides; still shared if they were.
TokenizerPair with_special_words(const TokenizerPair& tokenizers);

}  // namespace tapestry
