// The rows of an epoch of several corpora: each row once, or shares by weights.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/option_report.h"

namespace tapestry {

/// The share of each corpus of a list in an epoch.
struct MixOptions {
  static constexpr double kLargestWeight = 1e6;
  static constexpr double kLargestTemperature = 1e6;

  /// Shares in proportion to these; empty or 0: no corpus has one.
  std::vector<double> weights;
  /// T > 0: shares in proportion to n^(1/T), where n is the number of rows of a corpus (Devlin et
  /// al. 2019, for languages; T = 1: as large as they are; T = 5 is usual). 0: none.
  double temperature = 0;

  /// True if epochs are mixed; otherwise they have each row once.
  bool mixes() const;
  void validate(const OptionReport& report = OptionReport::throwing("data")) const;
};

/// The rows of one epoch, in an order that is not yet shuffled.
class EpochRows {
 public:
  /// Each of these rows once.
  explicit EpochRows(int64_t rows) : size_(rows) {}

  /// The row at a place of an epoch.
  struct Place {
    size_t corpus;  ///< its number in the list
    int64_t pass;   ///< through that corpus, from 0 over all epochs
    int64_t row;    ///< of the corpus
  };

  int64_t size() const { return size_; }
  /// The row among those of all corpora.
  int64_t operator[](int64_t i) const;
  /// For a mixture with shares.
  Place place(int64_t i) const;

 private:
  friend class Mixture;

  // Rows that a corpus gives.
  struct Part {
    int64_t end;    // in the epoch
    int64_t shift;  // from a place in the epoch to one among all that the corpus ever gives
    int64_t first;  // row of the corpus
    int64_t rows;
    uint32_t number;
  };

  const Part& part_of(int64_t i) const;

  int64_t size_;
  uint64_t seed_ = 0;
  std::vector<Part> parts_;
};

/// Corpora one after the other in a list of rows. With shares, an epoch has about as many rows as
/// all corpora together. After e epochs corpus i, whose share is p, has given round(p * rows * e)
/// of them: whole passes through its own rows, each pass in an order of its own, and the beginning
/// of one more, which the next epoch continues.
class Mixture {
 public:
  /// `parts`: the rows of each corpus; with none, or only one, each row comes once. Throws
  /// Error(kConfig) if there is not a weight for each.
  Mixture(int64_t rows, std::vector<int64_t> parts, const MixOptions& options, uint64_t seed);
  /// Each row once.
  explicit Mixture(int64_t rows) : rows_(rows) {}

  EpochRows epoch(int64_t number) const;

 private:
  int64_t given_after(size_t part, int64_t epochs) const;

  int64_t rows_;
  uint64_t seed_ = 0;
  std::vector<int64_t> parts_;
  std::vector<double> shares_;  // empty: each row once
};

}  // namespace tapestry
