// How a training begins on its ranks: rank 0 reads the config and the run folder, and what it finds
// there goes to the others, which touch neither.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/run_folder.h"
#include "apps/config/config.h"
#include "apps/run/log.h"
#include "apps/run/ranks.h"
#include "apps/run/resume.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// Joins the ranks, sees that they run the same program with the same arguments, and returns the
/// config, which rank 0 read. Throws as load_config(); on rank 0 alone, where there are others.
Config join_ranks(Ranks& ranks, const std::string& file, const std::vector<std::string>& overrides,
                  const std::string& resume);

/// Sets config.distributed.parts where it is open. Throws Error(kConfig) where the ranks cannot
/// share an update, with the way out.
void settle_parts(Config& config, const Resume& resume, int64_t ranks);

/// What rank 0 found goes to the others: the config, completed, and the facts about the start, the
/// tokenizers included, which rank 0 makes where the config asks for fresh ones.
void share_start(Ranks& ranks, Config& config, std::unique_ptr<Resume>& resume,
                 const Report& report);

/// kernel_probe() of this machine; "" where a GPU computes. Warns where a training goes on that
/// other kernels began. Throws Error(kConfig) where the ranks' differ, and with it what they would
/// compute; with sharded parameters, which all get from one rank, it warns.
std::string compare_kernels(Ranks& ranks, const Config& config, const Resume& resume, RunLog& log);

/// make_task() on every rank, rank 0 first where the others see its run folder and find the tokens
/// that it keeps there. Sees that all read the same data.
std::unique_ptr<TrainingTask> make_task_of_ranks(Ranks& ranks, const Config& config,
                                                 const Resume& resume, const Report& report);

/// XXH3 of the parameters' elements.
std::string checksum_of(const ParamStore& store);

}  // namespace tapestry
