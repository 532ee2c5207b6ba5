// Weights of several scorers, learnt so that a metric of the chosen hypotheses is best: minimum
// error rate training (Och 2003).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/scores/metric.h"

namespace tapestry {

/// The hypotheses of one sentence, the search's best first.
struct ScoredHypotheses {
  std::vector<double> values;      ///< (hypotheses, scorers)
  std::vector<double> statistics;  ///< (hypotheses, Metric::width())
};

/// The hypothesis with the largest weighted sum of its values, of equal ones the first.
/// values (hypotheses, scorers), weights (scorers).
size_t best_hypothesis(std::span<const double> values, std::span<const double> weights);

/// The metric's score if best_hypothesis() of each sentence is chosen.
double score_of_choice(const Metric& metric, const std::vector<ScoredHypotheses>& sentences,
                       std::span<const double> weights);

struct TuningOptions {
  static constexpr int64_t kMostStarts = 10000;

  uint64_t seed = 1;
  int64_t starts = 20;  ///< the given weights, and random ones
  /// The weights of starts that end within so many points of the best one are averaged, if that
  /// keeps half of what the best one gains: they fit these sentences less, and others more. 0: the
  /// best one alone.
  double average_within = 0.1;
  bool larger_is_better = true;
};

struct TunedWeights {
  std::vector<double> weights;     ///< their sizes add up to 1; six digits
  double before = 0;               ///< the metric's score with the given weights
  double after = 0;                ///< and with the tuned ones
  std::vector<bool> useless = {};  ///< scorers with equal values in each sentence: weight 0
};

/// From each start lines are searched along every scorer and along random directions, each exactly:
/// a hypothesis wins where its line is the upper envelope of its sentence, so the score of the
/// whole set is known in each interval. Values are scaled by their deviation within sentences, so
/// the units of a scorer do not matter. The result is never worse than the given weights, which it
/// is if nothing is better. The same for any number of threads. Throws Error(kRuntime) for values
/// that are not finite, and unless one of the weights is not 0.
TunedWeights tune_weights(const Metric& metric, const std::vector<ScoredHypotheses>& sentences,
                          const std::vector<double>& weights, const TuningOptions& options);

}  // namespace tapestry
