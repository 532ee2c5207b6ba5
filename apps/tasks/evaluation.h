// Evaluates trained models on data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/corpora/corpus.h"
#include "data/scores/answer_scores.h"
#include "data/scores/class_scores.h"

namespace tapestry {

class LossSums;

struct Evaluation {
  enum class Kind { kNumber, kPercent, kCount };
  struct Figure {
    std::string name;
    double value = 0;
    Kind kind = Kind::kNumber;
    std::optional<ConfidenceInterval> interval = {};  ///< of 95 %
  };

  void add(const std::string& name, double value) {
    figures.push_back({name, value, Kind::kNumber});
  }
  void add_percent(const std::string& name, double value) {
    figures.push_back({name, value, Kind::kPercent});
  }
  void add(const std::string& name, const SampledRatio& value);
  void add_percent(const std::string& name, const SampledRatio& share);
  /// exact_match and f1.
  void add_answers(const AnswerScores& scores);
  /// nll, perplexity and accuracy.
  void add_losses(const LossSums& losses, const std::string& perplexity = "ppl");
  void add_count(const std::string& name, int64_t value) {
    figures.push_back({name, static_cast<double>(value), Kind::kCount});
  }
  /// Adds the metrics with these names, as far as they exist; scores and shares are in percent.
  void add(const std::map<std::string, double>& metrics, const std::vector<std::string>& names);

  std::vector<Figure> figures;         ///< in the order in which they are shown
  std::optional<ClassScores> classes;  ///< of a classifier
};

/// One JSON object: the figures by name, "intervals", and of a classifier "classes" and
/// "confusion".
std::string to_json(const Evaluation& result);

/// Warns (to stderr) of examples that are left out or cut: the figures are not those of the whole
/// files. Also warns of many tokens that the vocabulary does not know.
void warn_of_dropped(const FilterCounts& counts);

}  // namespace tapestry
