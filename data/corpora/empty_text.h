// One rule for empty texts: corpora leave them out and filters do not answer them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "data/files/utf8.h"

namespace tapestry {

/// True if `text` shows nothing, or if `ids` has no token because normalisation left nothing of it.
inline bool is_empty_text(std::string_view text, std::span<const int32_t> ids) {
  return ids.empty() || is_blank(text);
}

}  // namespace tapestry
