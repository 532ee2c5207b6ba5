#include "core/printable.h"

#include <cstdio>

namespace tapestry {

std::string printable(std::string_view text) {
  constexpr unsigned char kFirstVisible = 0x20, kDelete = 0x7f;
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || (byte >= kFirstVisible && byte != kDelete)) {
      shown += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", byte);
    shown += escape;
  }
  return shown;
}

}  // namespace tapestry
