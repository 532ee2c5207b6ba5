// The normalizers of a tokenizer.json, which change a text before it is cut; private to
// data/tokenizers/.
#pragma once

#include <functional>

#include "data/tokenizers/parts/part.h"
#include "data/tokenizers/parts/placed_text.h"

namespace tapestry::tokenizers {

/// Changes a well-formed text in place. `continued`: the text follows other pieces, so that nothing
/// is put in front of it.
using TextChange = std::function<void(PlacedText& text, bool continued)>;

/// The part "normalizer". Throws Error(kData) for a type or a key that is not known.
TextChange make_normalizer(const Part& part);

}  // namespace tapestry::tokenizers
