// Columns of tables in a terminal.
#pragma once

#include <cstdint>
#include <string>

#include "data/files/utf8.h"

namespace tapestry {

/// A text and spaces up to a width in characters.
inline std::string padded(std::string text, int64_t width) {
  for (int64_t i = count_code_points(text); i < width; ++i) text += ' ';
  return text;
}

}  // namespace tapestry
