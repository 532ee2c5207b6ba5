// Patterns of names.
#pragma once

#include <string_view>

namespace tapestry {

/// True if a name matches a pattern, in which `*` stands for any characters or none.
bool matches(std::string_view name, std::string_view pattern);

}  // namespace tapestry
