// Functions of texts as Python's str has them, by code points; private to data/chat/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tapestry::jinja {

enum class Case { kLower, kUpper, kTitle, kCapitalized };
std::string with_case(std::string_view text, Case wanted);

/// Without characters of `set` (white space if null) at the chosen ends.
std::string stripped(std::string_view text, const std::string* set, bool left, bool right);

/// Every occurrence, or the first `count` (-1: all) of them.
std::string replaced(std::string_view text, std::string_view old, std::string_view with,
                     int64_t count);

/// str.split() with a separator that is not empty, and on white space; at most `most` (-1: any
/// number of) cuts, from the right with `from_right`.
std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t most,
                               bool from_right);
std::vector<std::string> split_on_space(std::string_view text, int64_t most);

/// str.splitlines()
std::vector<std::string> lines_of(std::string_view text);

}  // namespace tapestry::jinja
