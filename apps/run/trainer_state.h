// trainer_state.json of a checkpoint.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/run/data_files.h"
#include "data/batches/batching.h"
#include "optim/plateau.h"

namespace tapestry {

/// The updates over which the rate falls to 0 at the end of a run of so many hours.
struct Cooldown {
  int64_t begin = 0;    ///< updates done before it
  int64_t updates = 0;  ///< of it; 0: it has not begun
  double hours = 0;     ///< of the run; with others it begins anew

  bool has_begun() const { return updates > 0; }
  int64_t end() const { return begin + updates; }
  /// The factor of the rate of an update, counted from 1.
  double factor(int64_t step) const {
    if (!has_begun() || step <= begin) return 1;
    return static_cast<double>(std::max<int64_t>(0, end() - step + 1)) /
           static_cast<double>(updates);
  }
};

/// Everything besides tensors that a resumed run needs to continue bit for bit.
struct TrainerState {
  int64_t step = 0;  ///< updates done, skipped ones included
  DataPosition position;
  double best_metric = 0;
  int64_t best_step = -1;  ///< -1: never validated
  int64_t validations_without_best = 0;
  int64_t skipped_updates = 0;
  int64_t skipped_in_a_row = 0;
  double grad_norm = 0;              ///< of the last finite update, before clipping; 0: none yet
  double first_nll = 0;              ///< per target, of the first finite update; 0: none yet
  int64_t above_guess_in_a_row = 0;  ///< updates whose loss is worse than a uniform guess's
  int64_t parts = 1;     ///< of an update: another number sums gradients in another order
  std::string kernels;   ///< kernel_probe() of the CPU; empty: not known
  double seconds = 0;    ///< spent training, over all starts
  int64_t tokens = 0;    ///< that the model has read and written, without padding
  PlateauState plateau;  ///< reduce_lr_on_plateau
  Cooldown cooldown;     ///< of TrainingOptions::cooldown_share
  /// Updates by which a run of num_train_epochs is longer than its present batches say, because it
  /// had other batches before.
  int64_t more_updates = 0;
  bool owes_validation = false;  ///< of this update: a signal ended it
  bool counts_anew = false;      ///< that number is to be found first
  /// The files that were read; empty: unknown.
  std::vector<DataFile> train_files = {}, valid_files = {};
  std::vector<DataFile> teacher_files = {};  ///< the weights of training.teacher
};
std::string to_json(const TrainerState& state);
/// `name` is the file's, for messages. Throws Error(kData) when a key is missing, mistyped, or has
/// an impossible value.
TrainerState parse_trainer_state(const std::string& json, const std::string& name);

}  // namespace tapestry
