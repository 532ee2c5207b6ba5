#include "apps/run/trainer/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/finite.h"

namespace tapestry {
namespace {

constexpr int64_t kMostSkippedInARow = 10;

}  // namespace

// The loss of these weights shows if the weights of the last checkpoint were good.
void Divergence::watch(const Update& update) {
  if (!update.culprit.empty()) {
    fail_with(concat("update ", update.step, ": the gradient of ", update.culprit,
                     " is not finite, and ", update.updated_before,
                     update.updated_before == 1 ? " parameter was" : " parameters were",
                     " updated before it in backward; such an update is skipped as a whole with "
                     "training.optimizer_in_backward=false, from the last checkpoint on"));
  }
  if (!update.finite) return skipped(update);
  constexpr double kMargin = 1.1;  // a batch may begin a little above the others
  TrainerState& state = training_.state;
  state.skipped_in_a_row = 0;
  if (state.first_nll == 0) state.first_nll = update.nll;
  const double bound = kMargin * std::max(training_.task.uniform_nll(), state.first_nll);
  if (update.nll <= bound) {
    state.above_guess_in_a_row = 0;
    keeper_.found_good(update.step);
    return;
  }
  const int64_t patience = training_.config.training.divergence_patience;
  if (update.step <= training_.schedule.warmup() || patience == 0) return;
  if (++state.above_guess_in_a_row < patience) return;
  fail_with(
      fmt::format("the nll of {} updates in a row is above {:.4g}, that of a uniform guess or "
                  "of the first update and a tenth more; at update {} it is {:.4g}",
                  state.above_guess_in_a_row, bound, update.step, update.nll));
}

void Divergence::skipped(const Update& update) {
  TrainerState& state = training_.state;
  ++state.skipped_updates;
  ++state.skipped_in_a_row;
  const std::string what = std::isfinite(update.loss) ? concat("gradient norm ", update.grad_norm)
                                                      : concat("loss ", update.loss);
  training_.log.warn(concat("update ", update.step, " is skipped: ", what, " is not finite (",
                            state.skipped_in_a_row, " in a row, ", state.skipped_updates,
                            " in all)"));
  training_.log.skipped(update.step, {{"loss", update.loss}, {"grad_norm", update.grad_norm}});
  if (state.skipped_in_a_row < kMostSkippedInARow) return;
  fail_with(concat(kMostSkippedInARow,
                   " updates in a row had no finite loss and gradient, the last at update ",
                   update.step));
}

void Divergence::validated(bool finite) {
  validation_is_finite_ = finite;
  proved_step_ = finite ? training_.state.step : -1;
}

bool Divergence::is_not_finite() const {
  const TrainerState& state = training_.state;
  return !validation_is_finite_ || (state.skipped_in_a_row > 0 && proved_step_ != state.step);
}

void Divergence::check_parameters() const {
  for (const auto& [name, var] : training_.params) {
    if (first_not_finite(var.value())) fail_with(name + " is not finite any more");
  }
}

void Divergence::fail_with(const std::string& what) const {
  const int64_t good_step = keeper_.good_step();
  const std::string good =
      good_step < 0
          ? "No checkpoint of this run is known to be good"
          : concat("The last good checkpoint is ", training_.config.output_dir, "/checkpoint-",
                   good_step, "; --resume with it and another output_dir goes on from there");
  fail(ErrorKind::kDiverged, "[train] ", what, "; lower the learning rate or raise warmup_steps. ",
       good, '.');
}

}  // namespace tapestry
