// The values that a sweep tries: ranges and lists from the command line, and the draws from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapestry {

/// Numbers from `low` to `high`, both included.
struct SweepRange {
  double low = 0, high = 0;
  bool log = false;    ///< equal shares for equal factors; else for equal differences
  bool whole = false;  ///< integers only
};

/// A key that varies: over a range, or over a list of YAML values.
struct SweepAxis {
  std::string key;
  std::optional<SweepRange> range = {};
  std::vector<std::string> choices = {};
};

struct SweepSpace {
  std::vector<std::string> fixed;  ///< overrides "key=value" of every trial
  std::vector<SweepAxis> axes;
};

/// Reads "key=lo..hi", "key=lo..hi:log", "key=a,b,c" and "key=value". Commas inside brackets,
/// braces and quotes belong to a value. Ranges of keys whose type is integer are whole. Throws one
/// Error(kConfig) that lists all that make no sense; keys and values are the config reader's.
SweepSpace parse_sweep_space(const std::vector<std::string>& overrides);

/// The overrides of each trial: one "key=value" for each axis.
using SweepTrials = std::vector<std::vector<std::string>>;

/// Draws `count` different trials. Each axis is drawn by itself, an entry of a list or a place of a
/// range, uniformly: a function of (seed, key, trial), which neither more trials nor another axis
/// change. Only a trial that is equal to an earlier one is drawn again as a whole. Numbers have
/// four digits, or more in a narrow range far from 0. Lists only: if `count` is 0 or the size of
/// their grid, all its cells in order; without any axis one trial. Throws Error(kConfig) if the
/// space has fewer trials, or if a range comes without a count.
SweepTrials draw_trials(const SweepSpace& space, int64_t count, uint64_t seed);

}  // namespace tapestry
