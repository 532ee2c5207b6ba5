// Text with "<mask>" and "<extra_id_0>" for holes, as users of BART and T5 write it.
#pragma once

#include <memory>

#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// The tokenizer with its mask and sentinels as words: encode() makes special ids of "<mask>" and
/// "<extra_id_i>", and decode() writes them. Text behind such a word is encoded as by
/// encode_continuation(): "un<mask>able" has no word boundary. If a tokenizer finds special tokens
/// in a text by itself, "<mask>" and its own "[MASK]" are the same word.
std::shared_ptr<const Tokenizer> with_special_words(std::shared_ptr<const Tokenizer> tokenizer);

/// Does so for both sides; still shared if they were.
TokenizerPair with_special_words(const TokenizerPair& tokenizers);

/// A text that is one token.
struct Mark {
  std::string text;
  int32_t id = 0;
};

/// The same tokenizer, which cuts a text at the marks first. What stands between two of them is
/// encoded as a text of its own: tokenizer.json (data/tokenizers/tokenizer_json.h) says so, too.
/// `ends` end a text besides those of the vocabulary. A vocabulary of this project then gives a
/// text that has its beginning or its end no second one.
std::shared_ptr<const Tokenizer> with_marks(std::shared_ptr<const Tokenizer> tokenizer,
                                            const std::vector<Mark>& marks,
                                            const std::vector<int32_t>& ends = {});

}  // namespace tapestry
