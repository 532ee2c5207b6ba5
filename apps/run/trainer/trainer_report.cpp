// Reports of a training about its updates.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/run/trainer/trainer.h"
#include "core/allocator.h"
#include "core/base/clock.h"

namespace tapestry {
namespace {

constexpr int64_t kMostSkippedInARow = 10;

}  // namespace

void Trainer::report_skipped(const Update& update) {
  ++state_.skipped_updates;
  ++state_.skipped_in_a_row;
  const std::string what = std::isfinite(update.loss) ? concat("gradient norm ", update.grad_norm)
                                                      : concat("loss ", update.loss);
  log_.warn(concat("update ", update.step, " is skipped: ", what, " is not finite (",
                   state_.skipped_in_a_row, " in a row, ", state_.skipped_updates, " in all)"));
  log_.skipped(update.step, {{"loss", update.loss}, {"grad_norm", update.grad_norm}});
  if (state_.skipped_in_a_row < kMostSkippedInARow) return;
  diverged(concat(kMostSkippedInARow,
                  " updates in a row had no finite loss and gradient, the last at update ",
                  update.step));
}

// The loss of these weights shows if the weights of the last checkpoint were good.
void Trainer::watch_loss(const Update& update) {
  constexpr double kMargin = 1.1;  // a batch may begin a little above the others
  if (state_.first_nll == 0) state_.first_nll = update.nll;
  const double bound = kMargin * std::max(task_.uniform_nll(), state_.first_nll);
  if (update.nll <= bound) {
    state_.above_guess_in_a_row = 0;
    if (saved_step_ < update.step) good_step_ = saved_step_;
    return;
  }
  const int64_t patience = config_.training.divergence_patience;
  if (update.step <= schedule_.warmup() || patience == 0) return;
  if (++state_.above_guess_in_a_row < patience) return;
  diverged(
      fmt::format("the nll of {} updates in a row is above {:.4g}, that of a uniform guess or "
                  "of the first update and a tenth more; at update {} it is {:.4g}",
                  state_.above_guess_in_a_row, bound, update.step, update.nll));
}

void Trainer::diverged(const std::string& what) const {
  const std::string good =
      good_step_ < 0
          ? "No checkpoint of this run is known to be good"
          : concat("The last good checkpoint is ", config_.output_dir, "/checkpoint-", good_step_,
                   "; --resume with it and another output_dir goes on from there");
  fail(ErrorKind::kDiverged, "[train] ", what, "; lower the learning rate or raise warmup_steps. ",
       good, '.');
}

void Trainer::report(bool logged) {
  const int64_t total = total_steps_;
  // NaN if every update was skipped.
  const double loss = window_.loss / window_.targets;
  const double nll = window_.nll / window_.targets;
  const double rate = static_cast<double>(window_.tokens) / window_.seconds;
  double left = state_.seconds / static_cast<double>(std::max<int64_t>(1, state_.step)) *
                static_cast<double>(total - state_.step);
  if (config_.training.max_hours > 0) {
    left = std::min(left, 3600 * config_.training.max_hours - state_.seconds);
  }
  const std::string status =
      fmt::format("loss {:.3f}  {:.0f} tokens/s  {} left", loss, rate, duration_text(left));
  log_.progress(state_.step, total, status);
  if (!logged) return;

  const double lr = rate_of(state_.step);
  const MemoryStats memory = memory_of(task_.parameters().device());
  // The error of a point is no probability.
  const bool likelihood = !config_.task->reads_points;
  const std::string nats =
      likelihood ? fmt::format("  nll {:.4f}  ppl {:.2f}", nll, std::exp(nll)) : "";
  MetricValues of_ranks;
  const std::string ranks = report_ranks(of_ranks);
  log_.info(
      fmt::format("update {}  epoch {}  loss {:.4f}{}  lr {:.3g}  grad {:.3g}  "
                  "{:.0f} tokens/s{}  {} left",
                  state_.step, state_.position.epoch, loss, nats, lr, window_.grad_norm, rate,
                  ranks, duration_text(left)));
  MetricValues line = {{"epoch", static_cast<double>(state_.position.epoch)}, {"loss", loss}};
  if (likelihood) {
    line.emplace_back("nll", nll);
    line.emplace_back("ppl", std::exp(nll));
  }
  line.insert(line.end(), {{"learning_rate", lr},
                           {"grad_norm", window_.grad_norm},
                           {"tokens_per_s", rate},
                           {"tokens", static_cast<double>(state_.tokens)},
                           {"skipped_updates", static_cast<double>(state_.skipped_updates)},
                           {"peak_bytes", static_cast<double>(memory.peak_bytes)},
                           {"seconds", state_.seconds}});
  line.insert(line.end(), of_ranks.begin(), of_ranks.end());
  log_.metrics(state_.step, "train", line);
  window_ = {};
}

double Trainer::rate_of(int64_t step) const {
  const double rate = learning_rate(schedule_, config_.learning_rate, step);
  return schedule_.type == ScheduleType::kReduceOnPlateau ? rate * state_.plateau.scale : rate;
}

std::string Trainer::rates_to_come() const {
  std::string text;
  for (const int64_t step : turning_points(schedule_, state_.step + 1)) {
    text += fmt::format("{}{:.3g} at update {}", text.empty() ? "" : ", ", rate_of(step), step);
  }
  if (schedule_.type == ScheduleType::kReduceOnPlateau) {
    text +=
        fmt::format("; times {} after more than {} validations without a better {}",
                    config_.plateau.factor, config_.plateau.patience, config_.training.lr_metric);
  }
  return text;
}

}  // namespace tapestry
