// ROUGE, equal to that of Google's rouge-score.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tapestry {

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

/// Throws Error(kData) if the numbers of lines differ or are 0.
RougeScore corpus_rouge(const std::vector<std::string>& hypotheses,
                        const std::vector<std::string>& references);

}  // namespace tapestry
