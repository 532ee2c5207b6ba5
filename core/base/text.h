// Lists as text.
#pragma once

#include <sstream>
#include <string>

namespace tapestry {

/// Joins anything streamable: join(std::vector{1, 2, 3}, " or ") == "1 or 2 or 3"
template <class Range>
std::string join(const Range& parts, const char* separator) {
  std::ostringstream out;
  const char* before = "";
  for (const auto& part : parts) {
    out << before << part;
    before = separator;
  }
  return out.str();
}

}  // namespace tapestry
