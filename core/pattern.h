// Names that a pattern stands for.
#pragma once

#include <string_view>

namespace tapestry {

/// Whether a name matches a pattern, in which `*` stands for any characters, also for none.
bool matches(std::string_view name, std::string_view pattern);

}  // namespace tapestry
