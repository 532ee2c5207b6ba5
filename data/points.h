// Points of the plane from a CSV, TSV or JSONL file, for regression.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"

namespace tapestry {

struct Points {
  std::vector<double> x;
  std::vector<double> y;

  int64_t size() const { return static_cast<int64_t>(x.size()); }
  /// A header and a line for each point, from which the same numbers are read.
  std::string csv() const;
};

/// Sets `value` to the number that the whole text is, space around it aside; false if it is none,
/// or not finite.
bool parse_number(const std::string& text, double& value);

/// The points of all corpora. A line of a csv is two numbers with a comma between them, unless
/// x_column and y_column choose among more; the first line may be a header, and blank lines count
/// for nothing. Throws Error(kData) naming the first line that is anything else, or a file without
/// a point.
Points load_points(const std::vector<CorpusSpec>& specs);

}  // namespace tapestry
