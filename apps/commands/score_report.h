// Prints the scores of `tapestry evaluate --hypothesis`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/scores/metric.h"
#include "data/scores/rouge.h"
#include "data/scores/significance.h"

namespace tapestry {

/// A metric's score of one system or one sentence.
struct ScoreLine {
  std::string name;
  std::string signature;
  SystemScore score;
  std::string detail;
  std::vector<Metric::Figure> figures;

  /// sacreBLEU's line: "chrF2|<signature> = 63.10 (μ = 63.08 ± 0.51)"
  std::string str(int width) const;
  nlohmann::ordered_json json() const;
};

nlohmann::ordered_json json_of(const RougeScore& rouge);

/// A metric's scores of several systems.
struct ScoreColumn {
  std::string key;  ///< in JSON
  std::string name;
  std::string signature;
  std::vector<SystemScore> scores;
};

/// A row for each system, a column for each metric, and the signatures.
std::string score_table(const std::vector<std::string>& systems,
                        const std::vector<ScoreColumn>& columns, int width);
nlohmann::ordered_json json_of(const std::vector<std::string>& systems,
                               const std::vector<ScoreColumn>& columns);

}  // namespace tapestry
