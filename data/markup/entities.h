// Characters that markup writes by a name or a number.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tapestry {

/// An entity or a reference to a character: "&amp;", "&#228;".
struct Entity {
  size_t length = 0;                  ///< bytes, with & and ;
  std::optional<char32_t> character;  ///< unset for a name that is not known here, and a character
                                      ///< that is no text, such as a control
};
/// The one at byte `at` of a text; of length 0 if there is none.
Entity entity_at(std::string_view text, size_t at);

/// The text with &amp;, &lt; and &gt; for their characters.
std::string with_entities(std::string_view text);

}  // namespace tapestry
