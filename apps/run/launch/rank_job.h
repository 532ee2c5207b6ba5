// The ranks of a training on this machine, as processes that this one starts and watches.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tapestry {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct RankJob {
  std::vector<std::string> command;  ///< a program, found as a shell does, and its arguments
  Environment added = {};            ///< to this process's environment, replacing variables
  Environment defaults = {};         ///< added unless this process has such variables
  double patience = 30;              ///< seconds that it may live without a rank
};

struct RankJobEnd {
  int code = 0;          ///< its exit code; 128 + N after a signal N
  int signal = 0;        ///< that asked this process to stop; 0: none
  std::string messages;  ///< the last 64 kB of its stderr
};

/// Runs the command until it and all processes that it left behind have ended. Copies its stderr to
/// this process's. A signal to stop (run/signals.h) goes on to it as SIGUSR1, which mpirun passes
/// to its ranks, and they save. It gets SIGTERM if this process dies, and SIGKILL when it has had
/// no rank (a process of this program) for its patience: after a lost rank, mpirun of Open MPI may
/// wait for itself for ever. SIGCHLD is no longer ignored afterwards. No other child of this
/// process may run. Throws Error(kRuntime) if no process can be made, and Error(kConfig) if there
/// is no such program.
RankJobEnd run_rank_job(const RankJob& job);

}  // namespace tapestry
