#include "data/scores/class_scores.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace tapestry {

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

ClassCounts::ClassCounts(std::vector<std::string> names)
    : names_(std::move(names)),
      confusion_(names_.size(), std::vector<int64_t>(names_.size())),
      ranks_(names_.size()) {}

bool ClassCounts::add(int64_t truth, std::span<const double> scores) {
  check(scores.size() == names_.size(), "class scores", "expected a score for each of ",
        names_.size(), " classes, got ", scores.size(), '.');
  const auto own = static_cast<size_t>(truth);
  const auto predicted =
      static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  size_t rank = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    rank += scores[i] > scores[own] || (scores[i] == scores[own] && i < own) ? 1 : 0;
  }
  ++confusion_[own][predicted];
  ++ranks_[rank];
  ++examples_;
  return predicted == own;
}

double ClassCounts::top_k_accuracy(int64_t k) const {
  const int64_t hits = std::accumulate(ranks_.begin(), ranks_.begin() + k, int64_t{0});
  return percent(hits, examples_);
}

ClassScores ClassCounts::scores() const {
  ClassScores result;
  result.confusion = confusion_;
  int64_t right = 0, occurring = 0;
  for (size_t c = 0; c < names_.size(); ++c) {
    int64_t predicted = 0;
    for (const std::vector<int64_t>& row : confusion_) predicted += row[c];
    const int64_t examples =
        std::accumulate(confusion_[c].begin(), confusion_[c].end(), int64_t{0});
    const int64_t hits = confusion_[c][c];
    result.classes.push_back({.name = names_[c],
                              .precision = percent(hits, predicted),
                              .recall = percent(hits, examples),
                              .f1 = percent(2 * hits, predicted + examples),
                              .examples = examples});
    right += hits;
    occurring += predicted + examples > 0 ? 1 : 0;
    result.macro_f1 += result.classes.back().f1;
    result.weighted_f1 += result.classes.back().f1 * static_cast<double>(examples);
  }
  if (examples_ == 0) return result;
  result.accuracy = percent(right, examples_);
  result.macro_f1 /= static_cast<double>(occurring);
  result.weighted_f1 /= static_cast<double>(examples_);
  return result;
}

}  // namespace tapestry
