// The training loop: the same for every task.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/run/trainer/divergence.h"
#include "apps/run/trainer/journal.h"
#include "apps/run/trainer/keeper.h"
#include "apps/run/trainer/updater.h"
#include "apps/run/trainer/validator.h"
#include "apps/run/updates.h"
#include "autograd/first_not_finite.h"

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

  /// Trains to the end, to update `stop_at`, or until a signal or a time limit: saves, and returns
  /// the exit code (0, or 128 + the signal's number). Trains nothing if `stop_at` is reached
  /// already. A run that is stopped before its end goes on with the same bits as one that was not.
  /// Throws Error(kDiverged) as Divergence::watch(), and at the end if the last update or
  /// validation was not finite. Nothing is saved meanwhile.
  int run(int64_t stop_at = kNoStop);

  /// Computes the updates up to this one, and this one's gradients, as run() does or did. Nothing
  /// is written, and the training cannot continue afterwards. Throws as run().
  Replayed replay(int64_t step);

 private:
  /// Computes the next update, and finishes the one before: on a GPU, while the new one still runs.
  /// Returns false if a signal ended it: then nothing has changed.
  bool launch_update();
  /// Finishes the update that was launched last, if any.
  void finish_update();
  /// Returns true when the metric is the best so far.
  bool validate();
  /// Postponed if the weights are not finite, unless they are the best.
  void save(bool best);
  /// Saves, and returns the exit code.
  int stop(int signal);
  /// Saves at the update that the caller asked for, or says that the run, which began with update
  /// `first`, was there already.
  void pause(int64_t stop_at, int64_t first);
  /// "goes on from here", or what a later start does if the last update is not saved.
  std::string from_where() const;
  /// True if the cooldown begins now.
  bool begin_cooldown_in_time();
  /// True after the last update, or when patience or time is over.
  bool is_over() const;
  /// The end of a run that nothing stopped.
  void finish();

  Training training_;
  TrainerState& state_;
  Updater updater_;
  Keeper keeper_;
  Divergence divergence_;
  Validator validator_;
  Journal journal_;
  bool save_is_late_ = false;
};

}  // namespace tapestry
