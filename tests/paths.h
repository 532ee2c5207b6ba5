// Where tests find files. Compiled once, so that only one object file knows the place of a
// checkout.
#pragma once

#include <string>

namespace tapestry {

/// A file of the project, by its path from the root.
std::string project_file(const std::string& path);

/// The program under test: what the variable TAPESTRY_BINARY names, else the one that was built.
std::string tapestry_binary();

}  // namespace tapestry
