// Corpus chrF and chrF++ (Popovic 2015, 2017), equal to sacreBLEU's figures: the F-score of the
// precisions and recalls averaged over the orders that both sides have.
#pragma once

#include <string>
#include <vector>

#include "core/base/option_report.h"
#include "data/scores/metric.h"

namespace tapestry {

struct ChrfOptions {
  int char_order = 6;
  int word_order = 0;  ///< 2: chrF++
  int beta = 2;        ///< weight of recall
  bool lowercase = false;
  bool whitespace = false;     ///< it is part of the n-grams of characters
  bool eps_smoothing = false;  ///< averages the F-scores of all orders, missing ones nearly 0

  static constexpr int kMostOrder = 100;
  static constexpr int kMostBeta = 10000;

  void validate(const OptionReport& report = OptionReport::throwing("chrf")) const;
};

/// With several references the best score counts.
class Chrf : public Metric {
 public:
  /// Throws Error(kConfig) for bad options.
  explicit Chrf(ChrfOptions options = {});

  std::string name() const override;
  std::string signature() const override;
  size_t width() const override;
  void measure(std::span<const std::string_view> hypotheses,
               std::span<const std::string> references, double* out) const override;
  double score(const double* sums) const override;
  Sample score(const float* sums) const override;

 private:
  ChrfOptions options_;
};

struct ChrfScore {
  double score = 0;  ///< in [0, 100]
  std::string name;  ///< "chrF2", "chrF2++"
  std::string
      signature;  ///< "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:tapestry-0.1.0"

  /// "chrF2|<signature> = 63.10"
  std::string str() const;
};

/// Throws Error(kData) if the numbers of lines differ or are 0, Error(kConfig) for bad options.
ChrfScore corpus_chrf(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const ChrfOptions& options = {});

}  // namespace tapestry
