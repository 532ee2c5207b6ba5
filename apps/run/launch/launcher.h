// Trainings whose ranks this program starts, all on this machine, and starts again if one is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/config/config.h"

namespace tapestry {

struct RankLaunch {
  int64_t ranks;
  std::string resume;  ///< of the first start (StartArguments)
  /// This program's arguments on each rank, with this value of --resume.
  std::function<std::vector<std::string>(const std::string& resume)> arguments;
};

/// Runs `tapestry <arguments>` on the ranks and returns the exit code. If a rank is lost
/// (lost_rank.h) and config.distributed.on_failure is kShrink, the training goes on from its newest
/// checkpoint on as many of the other ranks as can share the parts. Throws Error(kRuntime) with the
/// first reason if ranks are lost twice with no new checkpoint between, and Error(kConfig) where
/// ranks cannot be started.
int launch_ranks(const Config& config, const RankLaunch& launch);

/// Throws Error(kConfig) if the config wants more than a launcher such as mpirun or srun does, and
/// one of them started this process.
void expect_restarts(const DistributedOptions& options);

/// What happened before launch_ranks() started this process again; "" if nothing did.
std::string story_of_launch();

}  // namespace tapestry
