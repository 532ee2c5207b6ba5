// The decoders of a tokenizer.json, which make text of tokens; private to data/tokenizers/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/tokenizers/parts/part.h"

namespace tapestry::tokenizers {

/// Changes a list of tokens; the joined list is the text.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

/// The part "decoder". Throws Error(kData) for a type or a key that is not known.
Decoder make_decoder(const Part& part);

}  // namespace tapestry::tokenizers
