// Successive halving (Jamieson and Talwalkar 2016): all trials train for a while, the better part
// of them goes on, until the last ones train to their end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapestry {

/// What one trial's config says about its length.
struct TrialLength {
  int64_t max_steps = 0;
  int64_t eval_steps = 0;
};

struct Halving {
  std::vector<int64_t> trials;  ///< that train in each rung, the first all of them
  /// The update at which each trial's rung ends: [rung][trial]. A validation stands there, and the
  /// last rung ends with the run.
  std::vector<std::vector<int64_t>> updates;

  size_t rungs() const { return trials.size(); }
  /// Updates that all trials together compute at most.
  int64_t most_updates() const;
};

/// One rung, to the end: no halving.
Halving without_halving(const std::vector<TrialLength>& lengths);

/// In each rung one of `factor` trials goes on, and the updates grow by that factor. There are as
/// many rungs as trials and validations allow. Throws Error(kConfig) for less than two trials, a
/// run without max_steps or validations, or one whose first validation is its last.
Halving halving_of(const std::vector<TrialLength>& lengths, int64_t factor);

/// The trials that go on, ascending: the `keep` best values, of equal ones the earlier trials. A
/// trial without a value never does.
std::vector<size_t> survivors(const std::vector<size_t>& trials,
                              const std::vector<std::optional<double>>& values, bool larger,
                              int64_t keep);

/// True if `a` is the better value; no value is worse than any.
bool is_better(const std::optional<double>& a, const std::optional<double>& b, bool larger);

}  // namespace tapestry
