// The post-processors of a tokenizer.json, which add tokens around texts; private to
// data/tokenizers/.
#pragma once

#include <optional>

#include "data/tokenizers/parts/part.h"
#include "data/tokenizers/special_ids.h"

namespace tapestry::tokenizers {

struct Frames {
  TextFrame one;
  std::optional<TwoTextFrame> two;  ///< unset: the file has none
};

/// Reads the part "post_processor". Throws Error(kData) for a type or a key that is not known, and
/// for a template in which the texts do not stand one behind the other.
Frames frames_of(const Part& part);

}  // namespace tapestry::tokenizers
