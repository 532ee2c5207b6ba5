// Watches whether a training goes well, and ends it where it does not.
#pragma once

#include <string>

#include "apps/run/trainer/keeper.h"

namespace tapestry {

/// Counts skipped_updates, skipped_in_a_row, first_nll and above_guess_in_a_row of the state.
class Divergence {
 public:
  Divergence(Training& training, Keeper& keeper) : training_(training), keeper_(keeper) {}

  /// Counts a finished update: as skipped, good or useless. Throws Error(kDiverged) after ten
  /// updates in a row without a finite loss and gradient, or training.divergence_patience of them
  /// with a useless loss.
  void watch(const Update& update);
  /// The last validation, and whether its loss was finite.
  void validated(bool finite);
  /// True if the last validation was not finite, or the last update was not and no validation has
  /// shown since that the weights are good: they are not worth saving.
  bool is_not_finite() const;
  /// Throws Error(kDiverged) if a parameter is not finite.
  void check_parameters() const;
  /// Throws Error(kDiverged), and names the last good checkpoint.
  [[noreturn]] void fail_with(const std::string& what) const;

 private:
  void skipped(const Update& update);

  Training& training_;
  Keeper& keeper_;
  bool validation_is_finite_ = true;
  int64_t proved_step_ = -1;  ///< of the last validation, if that was finite
};

}  // namespace tapestry
