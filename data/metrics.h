// Corpus BLEU and chrF with one reference per sentence, equal to sacreBLEU's figures, and ROUGE,
// equal to that of Google's rouge-score.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/option_report.h"

namespace tapestry {

struct BleuOptions {
  static constexpr const char* kTokenizers[] = {"13a", "none"};

  std::string tokenize = "13a";  ///< 13a: mteval-v13a's rules; none: split at white space
  bool lowercase = false;

  void validate(const OptionReport& report = OptionReport::throwing("bleu")) const;
};

/// Corpus BLEU (Papineni et al. 2002) over 1- to 4-grams. Orders without a match get exponential
/// smoothing, as in mteval-v13a.
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

  /// sacreBLEU's line: "BLEU|<signature> = 41.02 71.4/48.9/35.1/25.6 (BP = 1.000 ratio = ...)"
  std::string str() const;
};

/// Throws Error(kData) if the numbers of lines differ or are 0, Error(kConfig) for bad options.
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const BleuOptions& options = {});

struct ChrfOptions {
  int char_order = 6;
  int word_order = 0;  ///< 2: chrF++
  int beta = 2;        ///< weight of recall
  bool lowercase = false;

  void validate(const OptionReport& report = OptionReport::throwing("chrf")) const;
};

/// Corpus chrF (Popovic 2015, 2017): F-score of the precisions and recalls averaged over the orders
/// that both sides have. Character n-grams skip white space.
struct ChrfScore {
  double score = 0;  ///< in [0, 100]
  int64_t sentences = 0;
  std::string name;  ///< "chrF2", "chrF2++"
  std::string
      signature;  ///< "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:tapestry-0.1.0"

  /// "chrF2|<signature> = 63.10"
  std::string str() const;
};

/// Throws as corpus_bleu does.
ChrfScore corpus_chrf(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references, const ChrfOptions& options = {});

/// ROUGE-1, -2 and -L (Lin 2004): overlap of words, of pairs of words and of the longest common
/// subsequence. Each figure is the mean over the sentences. Words are runs of a to z and 0 to 9 in
/// lower case, without stemming: text in other scripts has none and scores 0.
struct RougeScore {
  struct Part {            ///< in [0, 100]
    double precision = 0;  ///< share of the hypothesis that matches
    double recall = 0;     ///< share of the reference
    double f = 0;          ///< their harmonic mean
  };
  Part rouge_1, rouge_2, rouge_l;
  int64_t sentences = 0;
  std::string signature;  ///< "nrefs:1|case:lc|stem:no|version:tapestry-0.1.0"

  /// "ROUGE|<signature> = 1: 45.12 (P = 50.00 R = 41.10) 2: ... L: ..."
  std::string str() const;
};

/// Throws as corpus_bleu does.
RougeScore corpus_rouge(const std::vector<std::string>& hypotheses,
                        const std::vector<std::string>& references);

/// The tokens of mteval-v13a, separated by single spaces.
std::string tokenize_13a(std::string_view line);

}  // namespace tapestry
