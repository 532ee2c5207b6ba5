// The training loop: the same for every task.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/checkpoint/run_folder.h"
#include "apps/config/config.h"
#include "apps/run/flight_recorder.h"
#include "apps/run/log.h"
#include "apps/run/ranks.h"
#include "apps/run/reporter.h"
#include "apps/run/resume.h"
#include "apps/run/trainer_state.h"
#include "apps/tasks/task.h"
#include "autograd/first_not_finite.h"
#include "autograd/running_statistics.h"
#include "core/host_copy.h"
#include "optim/ema.h"
#include "optim/gradient_exchange.h"
#include "optim/optimizer.h"

namespace tapestry {

/// An update that was computed again.
struct Replayed {
  UpdateRecord record;
  std::optional<FirstNotFinite::Finding> finding;  ///< nothing if all numbers are finite
  std::vector<std::vector<std::string>> texts;     ///< of each micro-batch, row by row
};

class Trainer {
 public:
  /// Reads the state of a training that is resumed, or unrounded weights for one that begins with
  /// another model's. The task stands at the place of `resume`. Throws Error(kData) when names,
  /// shapes or types of tensors differ. `resume` is used up: its files are closed. Only rank 0 has
  /// a folder and the tensors of `resume`.
  Trainer(const Config& config, TrainingTask& task, Ranks& ranks, RunFolder* folder, RunLog& log,
          Resume&& resume);

  /// Trains to the end, or until a signal or a time limit: saves, and returns the exit code (0, or
  /// 128 + the signal's number). Throws Error(kDiverged) after ten updates in a row without a
  /// finite loss and gradient, or training.divergence_patience of them with a useless loss, and at
  /// the end if the last update or validation was not finite. Nothing is saved meanwhile.
  int run();

  /// Computes the updates up to this one, and this one's gradients, as run() does or did. Nothing
  /// is written, and the training cannot continue afterwards. Throws as run().
  Replayed replay(int64_t step);

 private:
  /// An update that was launched, with its results on their way to the host.
  struct Launched {
    int64_t step = 0;    ///< 1 for the first update of a run
    DataPosition start;  ///< in the data, before it
    UpdateSize size;     ///< of all ranks
    double largest_activation = 0;
    std::vector<HostCopy> sums;  ///< of each micro-batch: CrossEntropy::sums
  };
  /// The results of an update.
  struct Update {
    int64_t step = 0;
    double loss = 0, nll = 0;  ///< per target
    double grad_norm = 0;
  };
  /// The last log line's values, and the sums since.
  struct Window {
    double seconds = 0, loss = 0, nll = 0, grad_norm = 0;
    int64_t tokens = 0;
    double targets = 0;
    double waited = 0;             ///< seconds, for other ranks
    std::vector<double> computed;  ///< seconds of each rank, without those
  };

  /// Forward, backward, and the optimizer's step. On a GPU this waits only for the update before.
  /// Returns false if a signal came before the last micro-batch: then nothing has changed.
  bool launch_update();
  /// True if an update can be abandoned, because nothing of it has left this rank.
  bool can_leave_update() const;
  /// Running statistics wait for the moments of all ranks.
  void defer_statistics();
  /// The gradients of this rank's micro-batches. Sets `largest` to their largest activation if it
  /// is recorded. Returns their CrossEntropy::sums; none if a signal came before the last.
  std::vector<Tensor> compute_gradients(const UpdateSize& size, double* largest = nullptr);

  // With several ranks, all of them call each of these functions, and the decision to do so follows
  // from common knowledge: no clock, signal or file of one rank decides.

  /// The size of the update on all ranks, from this rank's part. Throws if another rank is at
  /// another place in the data.
  UpdateSize agree_on(const UpdateSize& own);
  /// Finishes the exchange of gradients, and makes the sums of all micro-batches out of this
  /// rank's. `computed` seconds went into them.
  void exchange(std::vector<Tensor>& sums, double computed);
  /// Rank 0's tensors.
  void share(const NamedTensors& tensors);
  /// Replicas that drift apart are found before anything is written.
  void expect_equal_parameters();
  /// "4 ranks on 2 hosts: 8 parts of 1 micro-batch, 15 buckets of 8 MB, open mpi 4.1.4"
  std::string ranks_and_parts() const;
  /// "  exchange 3.1 %  slowest rank 2, hostb +1.4 %", and the numbers for metrics.jsonl.
  std::string report_ranks(MetricValues& line) const;

  // Records for a later replay (trainer_incident.cpp).

  /// Writes a line of the ring, and an incident if the update is the first of a row that is not
  /// finite.
  void remember(const Launched& launched, const Update& update, bool finite);
  UpdateRecord record_of(const Launched& launched, const Update& update);
  /// On a CPU the weights are still the ones that gave the loss.
  void watch_for_jump(const Launched& launched, const std::vector<Tensor>& sums);
  /// Writes incident-STEP in the run folder: the weights, and the update's place in the data.
  void write_incident(const Launched& launched, const std::string& what);

  /// Waits for the update that was launched last, if any: counts it, and warns when it was skipped.
  void finish_update();
  void report_skipped(const Update& update);
  /// Counts an update that was finite as good or useless.
  void watch_loss(const Update& update);
  [[noreturn]] void diverged(const std::string& what) const;
  /// True if the last validation was not finite, or the last update was not and no validation has
  /// shown since that the weights are good: they are not worth saving.
  bool is_not_finite() const {
    return !validation_is_finite_ || (state_.skipped_in_a_row > 0 && proved_step_ != state_.step);
  }
  /// Says how training goes, when it is time to.
  void report(bool logged);
  std::map<std::string, double> measure(HeldOut set, ValidationDetails* details = nullptr);
  /// Returns true when the metric is the best so far.
  bool validate();
  /// Measures the test set with the best checkpoint, if this was not done at this update before.
  /// The model then holds that checkpoint's parameters: training is over.
  void measure_test();
  /// Postponed if the weights are not finite, unless they are the best.
  void save(bool best);
  /// Saves, and returns the exit code.
  int stop(int signal);
  bool patience_is_over() const;
  /// The rate of an update, counted from 1, after the validations up to now.
  double rate_of(int64_t step) const;
  /// The rates of the updates that are still to come.
  std::string rates_to_come() const;
  /// Lowers the rate if the validation demands it.
  void watch_plateau(const std::map<std::string, double>& metrics);
  void load_training_tensors(const Resume& resume);
  void load_checkpoint(const Resume& resume);
  /// Protects the checkpoint before the one that a run resumes, until that one is proved good.
  void protect_earlier();
  NamedTensors whole_state();
  NamedTensors whole_masters();
  bool has_pieces() const;
  std::set<std::string> rounded_parameters() const;
  void load_first_masters(const TensorReader& weights);
  /// The parameters whose name the source has.
  NamedTensors parameters_in(const TensorReader& source) const;
  void begin_averages();

  const Config& config_;
  TrainingTask& task_;
  const int64_t total_steps_;
  const ScheduleOptions schedule_;
  Ranks& ranks_;
  RunFolder* const folder_;  ///< of rank 0
  RunLog& log_;
  NamedVars params_;            ///< all of the model
  NamedVars trained_;           ///< without frozen ones
  TensorReader first_weights_;  ///< the initial weights, if bfloat16 rounded frozen parameters ...
  std::optional<std::set<std::string>> exact_elsewhere_;  ///< ... and their names, once known
  std::unique_ptr<GradientExchange> exchange_;            ///< null for a single rank with one part
  Optimizer optimizer_;
  std::unique_ptr<Ema> ema_;
  std::optional<DeferredStatistics> statistics_;  ///< of batch norms, on several ranks
  std::unique_ptr<FlightRecorder> recorder_;      ///< of rank 0
  bool recorder_failed_ = false;
  TrainerState state_;
  Window window_;
  std::optional<Launched> launched_;
  int64_t saved_step_ = -1;
  int64_t good_step_ = -1;  ///< the last saved step whose weights a later update found good
  bool save_is_late_ = false;
  bool validation_is_finite_ = true;
  int64_t proved_step_ = -1;   ///< step of the last validation, if that was finite
  double agreed_seconds_ = 0;  ///< state_.seconds of rank 0 after the last update
  int stop_signal_ = 0;        ///< that some rank got
};

}  // namespace tapestry
