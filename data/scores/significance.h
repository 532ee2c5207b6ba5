// Significance of scores and of their differences, with sacreBLEU's figures: the draws are NumPy's,
// and values that NumPy computes in single precision are computed so here. Sentences are measured
// once; a resample is a sum.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/scores/metric.h"

namespace tapestry {

constexpr uint64_t kScoreSeed = 12345;  ///< sacreBLEU's

/// Mean and half the width of the 95 % interval of resampled scores.
struct Interval {
  double mean = 0;
  double half_width = 0;
};

struct SystemScore {
  double score = 0;
  std::optional<Interval> interval;
  /// The probability of a difference to the first system as large as this one if both are the same.
  std::optional<double> p_value;
};

/// Scores of as many sentences drawn with replacement, `samples` times (Koehn 2004), of one system.
Interval bootstrap_interval(const Metric& metric, const SentenceStatistics& statistics,
                            int64_t samples, uint64_t seed);

/// The same for several systems with the same draws; each is tested against the first.
std::vector<SystemScore> paired_bootstrap(const Metric& metric,
                                          const SentenceStatistics& statistics, int64_t samples,
                                          uint64_t seed);

/// Tests against the first system: its sentences and the other's are exchanged at random, `trials`
/// times (Riezler and Maxwell 2005).
std::vector<SystemScore> paired_randomization(const Metric& metric,
                                              const SentenceStatistics& statistics, int64_t trials,
                                              uint64_t seed);

}  // namespace tapestry
