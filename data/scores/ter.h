// Translation edit rate (Snover et al. 2006), equal to sacreBLEU's figures and, but for extreme
// sentences, to Tercom's.
#pragma once

#include <string>

#include "data/scores/metric.h"

namespace tapestry {

/// Named after Tercom's options.
struct TerOptions {
  bool normalized = false;  ///< undoes entities and splits punctuation off
  bool no_punct = false;    ///< removes punctuation
  /// With `normalized`: every character of these scripts is a word. With `no_punct`: removes their
  /// punctuation, too. Otherwise without effect.
  bool asian_support = false;
  bool case_sensitive = false;
};

/// 100 times the fewest edits that make a hypothesis one of its references, over the mean length of
/// these. An edit inserts, deletes or replaces a word or shifts a run of words.
class Ter : public Metric {
 public:
  explicit Ter(TerOptions options = {}) : options_(options) {}

  std::string name() const override { return "TER"; }
  std::string signature() const override;
  size_t width() const override { return 2; }
  void measure(std::span<const std::string_view> hypotheses,
               std::span<const std::string> references, double* out) const override;
  double score(const double* sums) const override;
  Sample score(const float* sums) const override;
  std::vector<Figure> figures(const double* sums) const override;

 private:
  TerOptions options_;
};

/// The words that TER compares, as a text with white space between the words.
std::u32string tercom_words(std::string_view line, const TerOptions& options);

}  // namespace tapestry
