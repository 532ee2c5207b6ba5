// What the data will tell, before it is read: for whoever only wants the sizes of a model.
#pragma once

#include <functional>
#include <string>

#include "apps/config/config.h"
#include "data/tokenizer.h"

namespace tapestry {

/// Sets classes and the format of images that are open, and returns tokenizers of the right sizes;
/// `note` hears of what stands in for something unknown. Reads tokenizers that have a path, texts
/// of a few MB whose characters are the vocabulary, and the header of the first images. Where a run
/// has its tokenizers already, they are `known`, and no file is read for them.
TokenizerPair stand_ins(Config& config, const std::function<void(const std::string&)>& note,
                        const TokenizerPair& known = {});

/// Sets tokenizer.vocab_size to the size of a tokenizer that has a path, for whoever needs only
/// that. Warns (on stderr) where the file is not here.
void settle_vocab_size(Config& config);

}  // namespace tapestry
