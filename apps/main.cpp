#include <fcntl.h>

#include "apps/commands/cli.h"

namespace tapestry {
// The build writes its definition (cmake/commit.cmake): a new commit compiles that file only.
extern const char* const kCommit;
}  // namespace tapestry

namespace {

// A file that is opened takes the lowest free descriptor. If that were 2, the log would be written
// into a checkpoint. The descriptors that are put there can neither read nor write: a command whose
// input or output is missing fails as before.
bool standard_streams_are_taken() {
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int stream = 0; stream < 3; ++stream) {
    if (fcntl(stream, F_GETFD) != -1) continue;
    if (open("/dev/null", kModes[stream]) != stream) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (!standard_streams_are_taken()) return 1;
  return tapestry::run_command_line(argc, argv, tapestry::kCommit);
}
