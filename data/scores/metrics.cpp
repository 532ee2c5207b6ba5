#include "data/scores/metrics.h"

#include <algorithm>

namespace tapestry {
namespace {

std::unique_ptr<Metric> make_bleu(const MetricOptions& options) {
  return std::make_unique<Bleu>(options.bleu);
}
std::unique_ptr<Metric> make_chrf(const MetricOptions& options) {
  return std::make_unique<Chrf>(options.chrf);
}
std::unique_ptr<Metric> make_chrf_with_words(const MetricOptions& options) {
  ChrfOptions chrf = options.chrf;
  if (chrf.word_order == 0) chrf.word_order = 2;
  return std::make_unique<Chrf>(chrf);
}
std::unique_ptr<Metric> make_ter(const MetricOptions& options) {
  return std::make_unique<Ter>(options.ter);
}

constexpr MetricKind kMetrics[] = {
    {"bleu", true, make_bleu},
    {"chrf", true, make_chrf},
    {"chrf++", true, make_chrf_with_words},
    {"ter", false, make_ter},
};

}  // namespace

std::span<const MetricKind> metric_kinds() { return kMetrics; }

const MetricKind* find_metric(const std::string& name) {
  const auto* const found = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                                         [&](const MetricKind& kind) { return name == kind.name; });
  return found == std::end(kMetrics) ? nullptr : found;
}

double corpus_score(const Metric& metric, const Translations& translations) {
  return metric.score(SentenceStatistics(metric, translations).sums(0).data());
}

}  // namespace tapestry
