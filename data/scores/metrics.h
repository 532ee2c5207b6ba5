// The metrics of translations. Each is one row of metric_kinds().
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/scores/bleu.h"
#include "data/scores/chrf.h"
#include "data/scores/ter.h"

namespace tapestry {

struct MetricOptions {
  BleuOptions bleu;
  ChrfOptions chrf;  ///< of chrF, and of chrF++ but for its order of words, which is at least 2
  TerOptions ter;
};

struct MetricKind {
  const char* name;  ///< "chrf++"
  bool larger_is_better;
  std::unique_ptr<Metric> (*make)(const MetricOptions& options);  ///< throws Error(kConfig)
};

std::span<const MetricKind> metric_kinds();

/// Null if no metric has this name.
const MetricKind* find_metric(const std::string& name);

/// The score of the first system.
double corpus_score(const Metric& metric, const Translations& translations);

}  // namespace tapestry
