// The training loop: the same for every task.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/run_folder.h"
#include "apps/config/config.h"
#include "apps/run/log.h"
#include "apps/run/resume.h"
#include "apps/run/trainer_state.h"
#include "apps/tasks/task.h"
#include "core/host_copy.h"
#include "optim/ema.h"
#include "optim/optimizer.h"

namespace tapestry {

class Trainer {
 public:
  /// Reads the state of a training that goes on, or unrounded weights for one that begins with
  /// another model's. The task stands where `resume` says. Throws Error(kData) when names, shapes
  /// or types of tensors differ. `resume` is used up: its files are closed.
  Trainer(const Config& config, TrainingTask& task, RunFolder& folder, RunLog& log,
          Resume&& resume);

  /// Trains to the end, or until a signal or a time limit: saves, and returns the exit code (0, 130
  /// for SIGINT, 143 for SIGTERM). Throws Error(kDiverged) after ten updates in a row without a
  /// finite loss and gradient.
  int run();

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

  /// Forward, backward, and the optimizer's step. On a GPU this waits only for the update before.
  void launch_update();
  /// Waits for the update that was launched last, if any: counts it, and warns when it was skipped.
  void finish_update();
  void report_skipped(const Update& update);
  /// Says how training goes, when it is time to.
  void report(bool logged);
  /// Returns true when the metric is the best so far.
  bool validate();
  /// Measures the test set with the best checkpoint, if this was not done at this update before.
  /// The model then holds that checkpoint's parameters: training is over.
  void measure_test();
  void save(bool best);
  bool patience_is_over() const;
  /// Of an update, counted from 1, as the validations up to now have it.
  double rate_of(int64_t step) const;
  /// The rates of the updates that are still to come.
  std::string rates_to_come() const;
  /// Lowers the rate, where the validation says so.
  void watch_plateau(const std::map<std::string, double>& metrics);
  void load_training_tensors(const Resume& resume);
  void load_checkpoint(const Resume& resume);
  void load_masters(const TensorReader& weights);
  /// Those whose name the source has.
  NamedTensors parameters_in(const TensorReader& source) const;
  void begin_averages();

  const Config& config_;
  TrainingTask& task_;
  const int64_t total_steps_;
  const ScheduleOptions schedule_;
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
