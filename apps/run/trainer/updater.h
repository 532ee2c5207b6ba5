// Computes the updates of a training, on all ranks together.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/trainer/training.h"
#include "autograd/running_statistics.h"
#include "core/host_copy.h"
#include "optim/backward_steps.h"
#include "optim/ema.h"
#include "optim/gradient_exchange.h"
#include "optim/optimizer.h"

namespace tapestry {

struct Update {
  int64_t step = 0;    ///< 1 for the first update of a run
  DataPosition start;  ///< in the data, before it
  UpdateSize size;     ///< of all ranks
  double largest_activation = 0;
  // Once it is finished:
  double loss = 0, nll = 0;  ///< per target
  double divergence = 0;     ///< from training.teacher, per target
  double alignment = 0;      ///< cross-entropy of the guided attention, per target
  double grad_norm = 0;
  double former_norm = 0;  ///< by which it was clipped with training.max_grad_norm_of: former
  bool finite = true;      ///< otherwise it changed nothing, but for what follows
  /// With training.optimizer_in_backward: of an update that was applied in part, as in StepResult.
  int64_t updated_before = 0;
  std::string culprit = {};
};

/// With several ranks, all of them call each of its functions, and the decision to do so follows
/// from common knowledge: no clock, signal or file of one rank decides.
class Updater {
 public:
  explicit Updater(Training& training);

  /// Forward, backward, and the optimizer's step; `before_step` is called before the last, which
  /// with training.optimizer_in_backward is before backward. On a GPU the work may still run
  /// afterwards. Returns false if a signal came before the last micro-batch:
  /// then nothing has changed.
  bool launch(
      const std::function<void(const Update&, const std::vector<Tensor>& sums)>& before_step);
  /// Waits for the update that was launched last, and takes it into the averages; nothing if there
  /// is none.
  std::optional<Update> finish();

  // The parts of launch(), for the replay of an update.

  /// The next update, whose batches are taken from the data. Throws if another rank is at another
  /// place in the data.
  Update begin();
  /// Called between the passes of a micro-batch, with the sums up to now.
  using BetweenPasses = std::function<void(const std::vector<Tensor>& sums)>;
  /// The gradients of this rank's micro-batches. Sets `largest` to their largest activation if it
  /// is given. Returns their CrossEntropy::sums; none if a signal came before the last.
  std::vector<Tensor> compute_gradients(const UpdateSize& size, double* largest = nullptr,
                                        const BetweenPasses& between = nullptr);
  /// Finishes the exchange of gradients, and makes the sums of all micro-batches out of this
  /// rank's. `computed` seconds went into them.
  void exchange(std::vector<Tensor>& sums, double computed);
  void step(Update& update, const std::vector<Tensor>& sums);

  Optimizer& optimizer() { return optimizer_; }
  /// The state and the unrounded weights of all parameters, whatever part of them this rank has.
  NamedTensors whole_state();
  NamedTensors whole_masters();
  /// Takes this rank's pieces of them back, if ranks have pieces; otherwise they are the
  /// optimizer's own memory. `state` may be null.
  void load_pieces(const NamedTensors& masters, const NamedTensors* state);
  /// Null without training.ema_decay.
  Ema* averages() const { return ema_.get(); }
  void begin_averages();

  /// From now on updates count figures of their activations and gradients, on a CPU.
  void count_figures();

  /// Seconds of training that all ranks agree on: those of rank 0 after the last update.
  double agreed_seconds() const;
  /// The signal that some rank got, known to all of them; 0: none.
  int agreed_signal() const;
  /// Empty for a single rank with one part, else
  /// "4 ranks on 2 hosts: 8 parts of 1 micro-batch, 15 buckets of 8 MB, open mpi 4.1.4"
  std::string ranks_and_parts() const;

  struct Times {
    double waited = 0;             ///< seconds, for other ranks
    std::vector<double> computed;  ///< seconds of each rank, without those; empty for one rank
  };
  const Times& times() const { return times_; }
  void reset_times() { times_ = {}; }

 private:
  struct Launched {
    Update update;
    std::vector<HostCopy> sums;  ///< of each micro-batch, on their way to the host
  };

  bool has_pieces() const;
  ClipOptions clip_of(Update& update) const;
  /// True if an update can be abandoned, because nothing of it has left this rank.
  bool can_leave_update() const;

  Training& training_;
  std::unique_ptr<GradientExchange> exchange_;
  Optimizer optimizer_;
  std::optional<BackwardSteps> in_backward_;
  std::unique_ptr<Ema> ema_;
  std::optional<DeferredStatistics> statistics_;  ///< of batch norms, on several ranks
  std::optional<Launched> launched_;
  bool counts_figures_ = false;
  Times times_;
  double agreed_seconds_;
  int agreed_signal_ = 0;
};

}  // namespace tapestry
