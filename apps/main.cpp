#include "apps/commands/cli.h"

namespace tapestry {
// The build writes its definition (cmake/commit.cmake): a new commit compiles that file only.
extern const char* const kCommit;
}  // namespace tapestry

int main(int argc, char** argv) {
  return tapestry::run_command_line(argc, argv, tapestry::kCommit);
}
