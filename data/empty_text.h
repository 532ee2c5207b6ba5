// When a text is empty for a model: one rule for what corpora leave out and filters do not answer.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "data/utf8.h"

namespace tapestry {

/// Whether `text` shows nothing, or its tokens `ids` are none: normalisation left nothing of it.
inline bool is_empty_text(std::string_view text, std::span<const int32_t> ids) {
  return ids.empty() || is_blank(text);
}

}  // namespace tapestry
