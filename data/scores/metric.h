// The common form of BLEU, chrF and TER: a sentence gives a few numbers, and the sums of these
// numbers give the score of a corpus. So a resample of the same sentences needs only new sums.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tapestry {

/// Translations of the same sentences, and their references.
struct Translations {
  std::vector<std::vector<std::string>> systems;     ///< for each system its sentences
  std::vector<std::vector<std::string>> references;  ///< for each sentence one or more

  size_t sentences() const { return references.size(); }
  /// References of each sentence, as in signatures: "1", or "var" if sentences differ.
  std::string reference_count() const;
  /// Throws Error(kData) unless there is a sentence, and every system has all of them and every
  /// sentence a reference.
  void check(const std::string& who) const;
};

/// One system against one reference each. Throws Error(kData) if the numbers of lines differ.
Translations one_system(const std::string& who, std::vector<std::string> hypotheses,
                        const std::vector<std::string>& references);

class Metric {
 public:
  /// A score from sums in single precision. `single`: NumPy would hold it in single precision.
  struct Sample {
    double score = 0;
    bool single = true;
  };
  /// A further figure besides the score.
  using Figure = std::pair<const char*, std::variant<double, int64_t, std::vector<double>>>;

  virtual ~Metric() = default;

  /// "BLEU", "chrF2++", "TER"
  virtual std::string name() const = 0;
  /// The signature after the number of references: "case:mixed|eff:no|tok:13a|smooth:exp"
  virtual std::string signature() const = 0;
  /// Numbers of a sentence.
  virtual size_t width() const = 0;
  /// Writes width() numbers for each hypothesis of one sentence. Called from several threads.
  virtual void measure(std::span<const std::string_view> hypotheses,
                       std::span<const std::string> references, double* out) const = 0;

  /// The score, in [0, 100], or above it for TER.
  virtual double score(const double* sums) const = 0;
  virtual Sample score(const float* sums) const = 0;
  /// The score of two systems' shuffled sentences: sums of whole numbers stay whole.
  virtual double shuffled_score(const double* sums) const { return score(sums); }
  /// The details behind the score in its line; may be empty.
  virtual std::string detail(const double* sums) const;
  virtual std::vector<Figure> figures(const double* sums) const;
};

/// "nrefs:1|bs:1000|seed:12345|case:...|version:tapestry-0.1.0". `references`: their number for a
/// sentence, or "var"; `draws`: "bs:1000|seed:12345|", or empty.
std::string full_signature(const Metric& metric, const std::string& references,
                           const std::string& draws = "");

/// The numbers of every sentence of every system.
class SentenceStatistics {
 public:
  /// Computed on all threads; the numbers do not depend on how many. Throws as Translations::check
  /// does.
  SentenceStatistics(const Metric& metric, const Translations& translations);

  size_t systems() const { return systems_; }
  size_t sentences() const { return sentences_; }
  size_t width() const { return width_; }
  const double* of(size_t system, size_t sentence) const {
    return values_.data() + (sentence * systems_ + system) * width_;
  }
  /// Over all sentences, in their order.
  std::vector<double> sums(size_t system) const;

 private:
  size_t systems_, sentences_, width_;
  std::vector<double> values_;
};

}  // namespace tapestry
