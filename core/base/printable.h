// Text from files and users on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tapestry {

/// The text with control bytes as "\x1b", which would else move the cursor, or worse. Line ends
/// and tabs stay.
std::string printable(std::string_view text);

/// Shortens words of more than 500 bytes (a path, a value): their middle is replaced by the number
/// of bytes left out.
std::string with_short_words(std::string_view text);

}  // namespace tapestry
