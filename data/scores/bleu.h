// Corpus BLEU (Papineni et al. 2002), equal to sacreBLEU's figures.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/option_report.h"
#include "data/scores/metric.h"
#include "data/scores/words.h"

namespace tapestry {

/// Treatment of orders without a match (Chen and Cherry 2014).
struct Smoothing {
  enum class Kind { kExp, kFloor, kAddK, kNone };
  const char* name;
  Kind kind;
  std::optional<double> value;  ///< the default of `smooth_value`; none: the method has no value
};
inline constexpr Smoothing kSmoothings[] = {
    {"exp", Smoothing::Kind::kExp, {}},       // precision 1/2, 1/4, ... match, as in mteval-v13a
    {"floor", Smoothing::Kind::kFloor, 0.1},  // number of matches instead of none
    {"add-k", Smoothing::Kind::kAddK, 1.0},   // added to n-grams and matches beyond order 1
    {"none", Smoothing::Kind::kNone, {}},
};

struct BleuOptions {
  std::string tokenize = "13a";  ///< of word_rules()
  bool lowercase = false;
  std::string smooth = "exp";               ///< of kSmoothings
  std::optional<double> smooth_value = {};  ///< unset: the method's default
  bool effective_order = false;             ///< orders above the longest n-gram do not count
  std::string spm_model = {};               ///< file, for tokenizers that need one

  void validate(const OptionReport& report = OptionReport::throwing("bleu")) const;
};

struct BleuScore {
  static constexpr int kOrders = 4;

  double score = 0;                          ///< in [0, 100]
  std::array<double, kOrders> precisions{};  ///< in [0, 100]
  std::array<int64_t, kOrders> correct{};    ///< matched n-grams
  std::array<int64_t, kOrders> total{};      ///< n-grams of the hypotheses
  double brevity_penalty = 0;
  int64_t hypothesis_tokens = 0;
  int64_t reference_tokens = 0;
  int64_t sentences = 0;
  /// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:tapestry-0.1.0"
  std::string signature;

  /// "71.4/48.9/35.1/25.6 (BP = 1.000 ratio = 1.02 hyp_len = 510 ref_len = 500)"
  std::string detail() const;
  /// sacreBLEU's line: "BLEU|<signature> = 41.02 71.4/48.9/35.1/25.6 (BP = 1.000 ratio = ...)"
  std::string str() const;
};

/// An n-gram counts at most as often as in the reference that has it most often; the length of the
/// references is that of the closest one.
class Bleu : public Metric {
 public:
  /// Throws Error(kConfig) for bad options, Error(kData) for a model that cannot be read.
  explicit Bleu(BleuOptions options = {});

  std::string name() const override { return "BLEU"; }
  std::string signature() const override;
  size_t width() const override { return 2 + 2 * BleuScore::kOrders; }
  void measure(std::span<const std::string_view> hypotheses,
               std::span<const std::string> references, double* out) const override;
  double score(const double* sums) const override { return whole(sums).score; }
  Sample score(const float* sums) const override;
  double shuffled_score(const double* sums) const override;
  std::string detail(const double* sums) const override { return whole(sums).detail(); }
  std::vector<Figure> figures(const double* sums) const override;

  /// All but signature and number of sentences.
  BleuScore whole(const double* sums) const;

 private:
  BleuOptions options_;
  const Smoothing* smoothing_;
  double smooth_value_;
  WordRule::Split split_;
};

/// Throws Error(kData) if the numbers of lines differ or are 0, Error(kConfig) for bad options.
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const BleuOptions& options = {});

}  // namespace tapestry
