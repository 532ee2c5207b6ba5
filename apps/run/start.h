// The start of a training on its ranks: rank 0 reads the config and the run folder, and sends the
// result to the others, which touch neither.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/run_folder.h"
#include "apps/config/config.h"
#include "apps/run/outputs/log.h"
#include "apps/run/ranks.h"
#include "apps/run/resume.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// Joins the ranks, checks that they run the same program with the same arguments, `options` of the
/// command among them, and returns the config, which rank 0 read. Throws as load_config(); only on
/// rank 0, if there are others.
Config join_ranks(Ranks& ranks, const ConfigSource& file, const std::vector<std::string>& overrides,
                  const std::vector<std::string>& options);

/// The device that the config names. If that is "auto" and a GPU, a GPU's rules hold, too, which
/// the config was read without. Chooses portable bits if the config wants them. Throws as
/// complete().
Device checked_device(const Config& config);

/// Sets config.distributed.parts if it is open. Throws Error(kConfig), with a way out, if the ranks
/// cannot share an update.
void settle_parts(Config& config, const Resume& resume, int64_t ranks);

/// Sends rank 0's results to the others: the completed config, and the facts about the start, with
/// the tokenizers, which rank 0 makes if the config asks for fresh ones.
void share_start(Ranks& ranks, Config& config, std::unique_ptr<Resume>& resume,
                 const Report& report);

/// kernel_probe() of this machine; "" if a GPU computes. Warns if other kernels began the training
/// that is resumed. Throws Error(kConfig) if the ranks' kernels differ, since their results would;
/// with sharded parameters, which all ranks get from one rank, it only warns.
std::string compare_kernels(Ranks& ranks, const Config& config, const Resume& resume, RunLog& log);

/// make_task() on every rank, on rank 0 first if the others see its run folder and its cached
/// tokens. Checks that all read the same data.
std::unique_ptr<TrainingTask> make_task_of_ranks(Ranks& ranks, const Config& config,
                                                 const Resume& resume, const Report& report);

/// XXH3 of the parameters' elements.
std::string checksum_of(const ParamStore& store);

}  // namespace tapestry
