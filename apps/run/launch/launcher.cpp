#include "apps/run/launch/launcher.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "apps/checkpoint/run_folder.h"
#include "apps/run/launch/lost_rank.h"
#include "apps/run/launch/rank_job.h"
#include "apps/run/signals.h"
#include "core/base/error.h"
#include "core/device_runtime.h"
#include "core/distributed/transport_mpi.h"

namespace tapestry {
namespace {

constexpr const char* kStory = "TAPESTRY_LAUNCH_STORY";  // set by launch_ranks(), maybe empty

int64_t newest_step(const std::string& folder) {
  if (!std::filesystem::exists(folder)) return -1;
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  return steps.empty() ? -1 : steps.back();
}

// One rank needs no launcher.
RankJob job_of(const RankLaunch& launch, int64_t ranks, const std::string& resume) {
  RankJob job;
  if (ranks > 1) {
    job.command = {"mpirun", "-host", "localhost", "-np", std::to_string(ranks)};
    // Any number of ranks on any cores, and in a container the user may be root, as here.
    job.defaults = {{"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                    {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  }
  job.command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
  std::ranges::copy(launch.arguments(resume), std::back_inserter(job.command));
  return job;
}

void check_launch(const DistributedOptions& options) {
  if (options.engine == "none") {
    fail(ErrorKind::kConfig, "[train] --ranks is for ranks that train together, got ",
         "distributed.engine: none.");
  }
  if (launched_with_others()) {
    fail(ErrorKind::kConfig,
         "[train] --ranks starts ranks, but mpirun or srun started this process ",
         "as one of several: leave out --ranks, or the launcher.");
  }
}

}  // namespace

int launch_ranks(const Config& config, const RankLaunch& launch) {
  check_launch(config.distributed);
  install_signal_handlers();
  end_on_signal(false);
  int64_t ranks = launch.ranks, saved = newest_step(config.output_dir);
  std::string resume = launch.resume, story;
  std::optional<LostRank> lost_before;  // since the newest checkpoint
  VisibleGpus gpus(ranks);
  for (;;) {
    RankJob job = job_of(launch, ranks, resume);
    job.added = gpus.environment();
    job.added.emplace_back(kStory, story);
    const RankJobEnd end = run_rank_job(job);
    if (end.signal != 0 && end.code != 0) return 128 + end.signal;
    const std::optional<LostRank> lost = lost_rank(end);
    if (!lost || config.distributed.on_failure == OnFailure::kStop) return end.code;
    if (const int64_t newest = newest_step(config.output_dir); newest > saved) {
      saved = newest;
      resume = "auto";
      lost_before.reset();
    }
    if (lost_before) {
      fail(ErrorKind::kRuntime, "[train] a rank was lost twice with no new checkpoint between; at ",
           "the first time: ", lost_before->reason);
    }
    lost_before = lost;
    const int64_t fewer = fewer_ranks(config.distributed.parts, ranks);
    story = concat("a rank was lost, ", fewer, " of ", ranks,
                   fewer == 1 ? " goes on: " : " go on: ", lost->reason);
    if (!parse_device(config.device).is_cpu()) gpus.lose(lost->rank);
    ranks = fewer;
  }
}

void expect_restarts(const DistributedOptions& options) {
  if (options.on_failure == OnFailure::kStop || !launched_with_others()) return;
  if (getenv(kStory) != nullptr) return;
  fail(
      ErrorKind::kConfig,
      "[train] distributed.on_failure: shrink is for tapestry train --ranks RANKS, on one machine: "
      "mpirun and srun end with their ranks. With them: distributed.on_failure=stop, and the same "
      "command again on fewer ranks.");
}

std::string story_of_launch() {
  const char* const story = getenv(kStory);
  return story == nullptr ? "" : story;
}

}  // namespace tapestry
