// The training loop: the same for every task.
#pragma once

#include <memory>
#include <string>

#include "apps/checkpoint.h"
#include "apps/config.h"
#include "apps/log.h"
#include "apps/training.h"
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

  const TrainerState& state() const { return state_; }

 private:
  struct Update {
    double loss = 0, nll = 0;  ///< per target
    double grad_norm = 0;
    int64_t tokens = 0, targets = 0;  ///< see UpdateSize
    bool applied = false;
  };
  /// What was logged last, and what came since.
  struct Window {
    double seconds = 0, loss = 0, nll = 0;
    int64_t updates = 0, tokens = 0, targets = 0;
  };

  Update train_one_update();
  void report_skipped(const Update& update);
  void report(const Update& update, double seconds);
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
  int64_t saved_step_ = -1;
};

}  // namespace tapestry
