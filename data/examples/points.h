// Points from a CSV, TSV or JSONL file, for regression: features, and a number or class for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/batches/batching.h"
#include "data/corpora/corpus.h"

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

struct PointBatch {
  std::vector<int64_t> indices;  ///< of the points
  int64_t rows = 0;              ///< their number
};
PointBatch rows_of(const PointBatch& batch, int64_t begin, int64_t end);

/// Epoch after epoch, every point once.
class PointBatches {
 public:
  /// Throws as EpochWalk does.
  PointBatches(const Points& points, const BatchOptions& options, DataPosition start = {});

  PointBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  EpochWalk walk_;
};

}  // namespace tapestry
