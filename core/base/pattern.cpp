#include "core/base/pattern.h"

namespace tapestry {

// After a `*` the shortest match is tried first; a later `*` makes going back to an earlier one
// needless, so this takes length times length at most.
bool matches(std::string_view name, std::string_view pattern) {
  constexpr size_t kNone = std::string_view::npos;
  size_t at = 0, star = kNone, taken = 0, p = 0;
  while (at < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = at;
    } else if (p < pattern.size() && pattern[p] == name[at]) {
      ++p;
      ++at;
    } else if (star != kNone) {
      p = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

}  // namespace tapestry
