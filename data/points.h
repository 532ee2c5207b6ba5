// Points from a CSV, TSV or JSONL file, for regression: features, and a number or class for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"

namespace tapestry {

struct Points {
  std::vector<double> x;  ///< features of each point, point by point
  std::vector<double> y;  ///< of each point: a number, or the number of its class
  int64_t features = 1;
  std::vector<std::string> classes = {};  ///< their names; empty: y is a number
  FilterCounts counts = {};

  int64_t size() const { return static_cast<int64_t>(y.size()); }
  /// A header and a line for each point, from which columns() reads the same points.
  std::string csv() const;
  /// The columns of csv() in a file.
  CorpusSpec columns(const std::string& path) const;
};

/// The points of all corpora. A line of a csv is two numbers with a comma between them, unless
/// columns are chosen among more; the first line may be a header, and blank lines count for
/// nothing. Anything else is malformed, and left out. Classes are those that there are, in their
/// order as texts, or `classes`, of which each must be one. Throws Error(kData) where the first
/// RecordReader::kMostOdd lines are malformed, or all, and Error(kConfig) where the corpora have
/// different numbers of features.
Points load_points(const std::vector<CorpusSpec>& specs,
                   const std::vector<std::string>& classes = {});

}  // namespace tapestry
