// The training loop: the same for every task.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/checkpoint/checkpoint.h"
#include "apps/config/config.h"
#include "apps/run/log.h"
#include "apps/tasks/task.h"
#include "core/host_copy.h"
#include "optim/ema.h"
#include "optim/optimizer.h"

namespace tapestry {

/// Everything beside tensors that a resumed run needs to go on bit for bit.
struct TrainerState {
  int64_t step = 0;  ///< updates done, skipped ones included
  DataPosition position;
  double best_metric = 0;
  int64_t best_step = -1;  ///< -1: never validated
  int64_t validations_without_best = 0;
  int64_t skipped_updates = 0;
  int64_t skipped_in_a_row = 0;
  double seconds = 0;  ///< spent training, over all starts
};
std::string to_json(const TrainerState& state);
TrainerState parse_trainer_state(const std::string& json, const std::string& name);

class Trainer {
 public:
  /// `checkpoint`, when not null, is what the run resumes from; its state was given to the task.
  Trainer(const Config& config, TrainingTask& task, RunFolder& folder, RunLog& log,
          const CheckpointFiles* checkpoint);

  /// Trains to the end, or until a signal or a time limit: saves, and returns the exit code (0, 130
  /// for SIGINT, 143 for SIGTERM). Throws Error(kDiverged) after ten updates in a row without a
  /// finite loss and gradient.
  int run();

  /// The unrounded weights of a model that starts where another one stands (init_from).
  void start_from(const NamedTensors& weights) { optimizer_.load_masters(weights); }

 private:
  /// An update that was launched, and what is on its way to the host.
  struct Launched {
    int64_t step = 0;  ///< 1 for the first update of a run
    UpdateSize size;
    std::vector<HostCopy> sums;  ///< of each micro-batch: CrossEntropy::sums
  };
  /// What came of it.
  struct Update {
    int64_t step = 0;
    double loss = 0, nll = 0;  ///< per target
    double grad_norm = 0;
  };
  /// What was logged last, and what came since.
  struct Window {
    double seconds = 0, loss = 0, nll = 0, grad_norm = 0;
    int64_t tokens = 0, targets = 0;
  };

  /// Forward, backward, and the optimizer's step. On a GPU this waits for the update before alone.
  void launch_update();
  /// Waits for the update that was launched last, if any: counts it, and warns when it was skipped.
  void finish_update();
  void report_skipped(const Update& update);
  /// Says how training goes, when it is time to.
  void report(bool logged);
  /// Returns true when the metric is the best so far.
  bool validate();
  void save(bool best);
  bool patience_is_over() const;
  void load_training_tensors(const CheckpointFiles& checkpoint);

  const Config& config_;
  TrainingTask& task_;
  RunFolder& folder_;
  RunLog& log_;
  NamedVars params_;   ///< all of the model
  NamedVars trained_;  ///< without those that are frozen
  Optimizer optimizer_;
  std::unique_ptr<Ema> ema_;
  TrainerState state_;
  Window window_;
  std::optional<Launched> launched_;
  int64_t saved_step_ = -1;
};

}  // namespace tapestry
