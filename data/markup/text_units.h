// The smallest parts of a text that tags stand between: words and signs.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace tapestry {

/// A part of a text: the bytes [begin, end).
struct TextUnit {
  size_t begin = 0;
  size_t end = 0;
  bool is_word = false;  ///< has letters or digits; else it is a sign
  bool operator==(const TextUnit&) const = default;
};

/// The words of well-formed UTF-8 by Unicode's rules (annex 29; by dictionaries where words have no
/// spaces between them), and each sign by itself. White space is no unit, and all else is in one.
std::vector<TextUnit> text_units(std::string_view text);

/// The number of the unit that holds byte `at`, or of the first one behind it.
size_t unit_at(const std::vector<TextUnit>& units, size_t at);

}  // namespace tapestry
