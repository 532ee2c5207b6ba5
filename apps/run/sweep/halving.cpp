#include "apps/run/sweep/halving.h"

#include <algorithm>

#include "core/base/error.h"

namespace tapestry {
namespace {

// Each rung's end, or nothing if two of them fall on one validation. Integers: a product with 1/3
// may miss a validation by a rounding.
std::optional<std::vector<int64_t>> ends_of(const TrialLength& length, int64_t factor,
                                            size_t rungs) {
  std::vector<int64_t> ends(rungs, length.max_steps);
  int64_t exact = length.max_steps;
  for (size_t rung = rungs - 1; rung-- > 0;) {
    exact /= factor;
    const int64_t validations = std::max<int64_t>(1, exact / length.eval_steps);
    ends[rung] = validations * length.eval_steps;
    if (ends[rung] >= ends[rung + 1]) return std::nullopt;
  }
  return ends;
}

}  // namespace

int64_t Halving::most_updates() const {
  int64_t sum = 0;
  for (size_t rung = 0; rung < rungs(); ++rung) {
    std::vector<int64_t> more = updates[rung];
    for (size_t trial = 0; rung > 0 && trial < more.size(); ++trial) {
      more[trial] -= updates[rung - 1][trial];
    }
    std::ranges::sort(more, std::greater<>());
    for (int64_t i = 0; i < trials[rung]; ++i) sum += more[static_cast<size_t>(i)];
  }
  return sum;
}

Halving without_halving(const std::vector<TrialLength>& lengths) {
  Halving halving;
  halving.trials = {std::ssize(lengths)};
  halving.updates.emplace_back();
  for (const TrialLength& length : lengths) halving.updates[0].push_back(length.max_steps);
  return halving;
}

Halving halving_of(const std::vector<TrialLength>& lengths, int64_t factor) {
  const int64_t count = std::ssize(lengths);
  if (count < 2) {
    fail(ErrorKind::kConfig, "[sweep] --halving expected at least 2 trials, got ", count, '.');
  }
  size_t rungs = 1;
  for (int64_t left = count; left >= factor; left /= factor) ++rungs;
  if (rungs == 1) {
    fail(ErrorKind::kConfig, "[sweep] --halving expected at least --factor ", factor,
         " trials, got ", count, '.');
  }
  for (const TrialLength& length : lengths) {
    if (length.max_steps <= 0 || length.eval_steps <= 0) {
      fail(ErrorKind::kConfig,
           "[sweep] --halving expected training.max_steps and training.eval_steps above 0, got ",
           length.max_steps, " and ", length.eval_steps, '.');
    }
    while (rungs > 1 && !ends_of(length, factor, rungs)) --rungs;
    if (rungs > 1) continue;
    fail(ErrorKind::kConfig,
         "[sweep] --halving expected a validation before the end, got training.eval_steps ",
         length.eval_steps, " of training.max_steps ", length.max_steps, '.');
  }
  Halving halving;
  halving.updates.resize(rungs);
  for (const TrialLength& length : lengths) {
    const std::vector<int64_t> ends = *ends_of(length, factor, rungs);
    for (size_t rung = 0; rung < rungs; ++rung) halving.updates[rung].push_back(ends[rung]);
  }
  for (int64_t left = count; halving.trials.size() < rungs; left /= factor) {
    halving.trials.push_back(left);
  }
  return halving;
}

bool is_better(const std::optional<double>& a, const std::optional<double>& b, bool larger) {
  if (!a || !b) return a.has_value() && !b.has_value();
  return larger ? *a > *b : *a < *b;
}

std::vector<size_t> survivors(const std::vector<size_t>& trials,
                              const std::vector<std::optional<double>>& values, bool larger,
                              int64_t keep) {
  std::vector<size_t> best = trials;
  std::ranges::stable_sort(
      best, [&](size_t a, size_t b) { return is_better(values[a], values[b], larger); });
  std::erase_if(best, [&](size_t trial) { return !values[trial]; });
  if (std::ssize(best) > keep) best.resize(static_cast<size_t>(keep));
  std::ranges::sort(best);
  return best;
}

}  // namespace tapestry
