#pragma once

namespace tapestry {

/// Parses the command line, runs the subcommand and returns the process exit code: 0 done, 1
/// run-time failure, 2 usage or config, 3 data, 4 diverged, 5 out of memory, 130 SIGINT, 143
/// SIGTERM. `commit` is that of the sources, for --version.
int run_command_line(int argc, char** argv, const char* commit);

}  // namespace tapestry
