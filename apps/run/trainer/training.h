// What the parts of a training share.
#pragma once

#include <cstdint>
#include <string>

#include "apps/checkpoint/run_folder.h"
#include "apps/config/config.h"
#include "apps/run/outputs/log.h"
#include "apps/run/ranks.h"
#include "apps/run/resume.h"
#include "apps/run/trainer_state.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// A training: its config, task, ranks and outputs, and the state that its checkpoints keep. Each
/// part changes the members of the state that its comment names.
struct Training {
  /// The state is that of `resume`, which gets the length of a run of epochs that had other batches
  /// before.
  Training(const Config& config, TrainingTask& task, Ranks& ranks, RunFolder* folder, RunLog& log,
           Resume& resume);

  Device device() const { return task.parameters().device(); }
  /// The learning rate of an update, counted from 1, after the validations up to now.
  double rate_of(int64_t step) const;
  /// The rates of the updates that are still to come.
  std::string rates_to_come() const;

  /// The files of the task in a checkpoint.
  CheckpointContent content_of_task() const;

  // With several ranks, all of them call these.

  /// Gives all ranks the tensors of rank 0.
  void share(const NamedTensors& tensors) const;
  /// Finds replicas that drift apart, before anything is written.
  void expect_equal_parameters() const;

  const Config& config;
  TrainingTask& task;
  Ranks& ranks;
  RunFolder* const folder;  ///< of rank 0
  RunLog& log;
  const int64_t total_steps;
  const ScheduleOptions schedule;
  const NamedVars params;   ///< all of the model
  const NamedVars trained;  ///< without frozen ones
  TrainerState state;
};

}  // namespace tapestry
