// The start of a training: from a config to where its first update can be computed.
#pragma once

#include <cstdint>
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

struct StartArguments {
  ConfigSource config;
  std::vector<std::string> overrides;
  std::string resume;  ///< auto | never | path of a checkpoint
  int64_t stop_at;     ///< of Trainer::run()
  const char* commit;  ///< of this program
};

struct StartedTraining {
  Config config;                      ///< as this rank trains with it
  std::unique_ptr<RunFolder> folder;  ///< of rank 0, as is all that is written
  std::unique_ptr<RunLog> log;
  std::unique_ptr<Resume> resume;
  std::unique_ptr<TrainingTask> task;  ///< at its place in the data, with the first weights
};

/// Joins the ranks, reads the config, opens or makes the run folder, chooses the device, checks
/// that the training fits into memory, reads the data, and makes the model. Throws as
/// load_config(), Resume, make_task() and Error(kOutOfMemory).
StartedTraining start_training(Ranks& ranks, const StartArguments& arguments);

}  // namespace tapestry
