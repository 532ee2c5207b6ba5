#include "optim/plateau.h"

#include <algorithm>
#include <cmath>

namespace tapestry {
namespace {

// The best comes first in the products and sums, as in PyTorch: the same roundings.
bool is_better(const PlateauOptions& options, double metric, double best, bool larger_is_better) {
  const double sign = larger_is_better ? 1 : -1;
  const double bar = options.threshold_mode == ThresholdMode::kRelative
                         ? best * (1 + sign * options.threshold)
                         : best + sign * options.threshold;
  return larger_is_better ? metric > bar : metric < bar;
}

}  // namespace

void validate(const PlateauOptions& options, const OptionReport& report) {
  report.expect(options.factor > 0 && options.factor < 1, "factor", "must be in (0, 1), got ",
                options.factor, '.');
  report.expect(options.patience >= 0, "patience", "must be 0 or more, got ", options.patience,
                '.');
  report.expect(std::isfinite(options.threshold) && options.threshold >= 0, "threshold",
                "must be 0 or more, got ", options.threshold, '.');
  report.expect(options.cooldown >= 0, "cooldown", "must be 0 or more, got ", options.cooldown,
                '.');
}

bool observe(const PlateauOptions& options, double metric, bool larger_is_better,
             double base_learning_rate, double lowest, PlateauState& state) {
  constexpr double kLeastFall = 1e-8;
  // PyTorch begins with an infinite best: the first finite metric is better.
  const bool better = state.has_best ? is_better(options, metric, state.best, larger_is_better)
                                     : std::isfinite(metric);
  if (better) {
    state.best = metric;
    state.has_best = true;
    state.without_best = 0;
  } else {
    ++state.without_best;
  }
  if (state.cooldown_left > 0) {
    --state.cooldown_left;
    state.without_best = 0;
  }
  if (state.without_best <= options.patience) return false;
  state.without_best = 0;
  state.cooldown_left = options.cooldown;
  const double rate = base_learning_rate * state.scale;
  const double fallen = std::max(rate * options.factor, lowest);
  if (rate - fallen <= kLeastFall) return false;
  state.scale = fallen / base_learning_rate;
  return true;
}

}  // namespace tapestry
