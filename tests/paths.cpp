#include "tests/paths.h"

#include <cstdlib>

namespace tapestry {

std::string project_file(const std::string& path) { return TAPESTRY_SOURCE_DIR "/" + path; }

std::string tapestry_binary() {
  const char* carried = std::getenv("TAPESTRY_BINARY");
  return carried != nullptr ? carried : TAPESTRY_BINARY;
}

}  // namespace tapestry
