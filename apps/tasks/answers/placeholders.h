// Placeholders for facts that only the data gives: classes, image format, vocabulary.
#pragma once

#include <functional>
#include <string>

#include "apps/config/config.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// Sets open classes and image formats, and returns tokenizers of the right sizes; calls `note` for
/// each placeholder. Reads tokenizers that have a path, texts of a few MB whose characters are the
/// vocabulary, and the header of the first images. If a run has its tokenizers already, they are
/// `known`, and no file is read for them.
TokenizerPair placeholder_tokenizers(Config& config,
                                     const std::function<void(const std::string&)>& note,
                                     const TokenizerPair& known = {});

/// Sets tokenizer.vocab_size to the size of a tokenizer that has a path, for callers that need only
/// the size. Warns (on stderr) if the file is missing.
void settle_vocab_size(Config& config);

}  // namespace tapestry
