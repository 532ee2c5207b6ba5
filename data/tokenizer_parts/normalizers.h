// The normalizers of a tokenizer.json, which change a text before it is cut; private to data/.
#pragma once

#include <functional>

#include "data/tokenizer_parts/part.h"
#include "data/tokenizer_parts/placed_text.h"

namespace tapestry::tokenizers {

/// Changes a well-formed text in place. `continued`: the text follows other pieces, so that nothing
/// is put in front of it.
using TextChange = std::function<void(PlacedText& text, bool continued)>;

/// The part "normalizer". Throws Error(kData) for a type or a key that is not known.
TextChange make_normalizer(const Part& part);

}  // namespace tapestry::tokenizers
