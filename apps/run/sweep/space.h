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
  bool log = false;    ///< equal shares for equal factors
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

/// Draws `count` different trials. A draw is a function of (seed, key, trial): neither more trials
/// nor another axis change it. Lists only: `count` cells of their grid, or all in order if it is 0;
/// without any axis one trial. Throws Error(kConfig) if the space has fewer trials, or if a range
/// comes without a count.
SweepTrials draw_trials(const SweepSpace& space, int64_t count, uint64_t seed);

}  // namespace tapestry
