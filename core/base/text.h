// Lists as text, and texts in a text.
#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

namespace tapestry {

/// Joins anything streamable: join(std::vector{1, 2, 3}, ", ", " or ") == "1, 2 or 3"
template <class Range>
std::string join(const Range& parts, const char* separator, const char* last_separator) {
  std::ostringstream out;
  size_t left = std::size(parts);
  for (const auto& part : parts) {
    out << part;
    if (--left > 0) out << (left == 1 ? last_separator : separator);
  }
  return out.str();
}

/// join(std::vector{1, 2, 3}, " or ") == "1 or 2 or 3"
template <class Range>
std::string join(const Range& parts, const char* separator) {
  return join(parts, separator, separator);
}

/// Replaces each `from` in the text, from the left; nothing if `from` is empty.
inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (from.empty() || at == std::string::npos) return;
  std::string replaced;
  size_t begin = 0;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    replaced.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  text = replaced.append(text, begin);
}

}  // namespace tapestry
