// Child processes of this program, some at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tapestry {

struct ChildJob {
  std::vector<std::string> arguments;  ///< behind the program's name
  std::string log;                     ///< file that its stdout and stderr are added to
};

/// Runs all jobs in their order, at most `processes` at a time, and calls `ended` with the number
/// and the exit code of each (128 + N after a signal N). Returns 0, or the signal that asked this
/// process to stop (run/signals.h): the children then got SIGTERM and have saved. If `ended`
/// throws, they get it, too. A child whose parent dies stops in the same way. SIGCHLD is no longer
/// ignored afterwards. Throws Error(kRuntime) if no process can be made.
int run_children(const std::vector<ChildJob>& jobs, int64_t processes,
                 const std::function<void(size_t job, int code)>& ended);

}  // namespace tapestry
