// What each token of a source is translated into, learned from a corpus: for the shortlists of a
// search (data/lexicon/shortlist.h).
#pragma once

#include <cstdint>
#include <vector>

#include "data/corpora/corpus.h"

namespace tapestry {

struct Lexicon {
  struct Translation {
    int32_t target;
    float probability;
    bool operator==(const Translation&) const = default;
  };

  /// Of each source token its translations, the most probable first, of equal ones the lower id.
  std::vector<std::vector<Translation>> translations;
  /// The most frequent target tokens with their shares of all, in the same order.
  std::vector<Translation> frequent;

  /// Puts each list into this order.
  void sort();
};

struct LexiconOptions {
  int64_t iterations = 5;  ///< of expectation and maximisation
  int64_t most = 100;      ///< translations that are kept of each source token, and
  int64_t frequent = 1000;
  double least_probability = 1e-5;  ///< of a translation that is kept

  static constexpr int64_t kMostIterations = 1000;
};

/// IBM model 1 (Brown et al. 1993) without the empty word: all places of the source are equally
/// probable, t(y | x) starts equal for all pairs of tokens that share a sentence, and each
/// iteration counts
///
///   c(x, y) = sum of t(y | x) / (sum of t(y | x') over the source's places x')  over all places
///   t(y | x) = c(x, y) / (sum of c(x, y') over y')
///
/// Counts are integers, multiples of 2^-32, so that their sums depend neither on threads nor on an
/// order. Ids are below the given sizes of the vocabularies. The memory is 16 bytes for each pair
/// of tokens that share a sentence.
Lexicon learn_lexicon(const TokenLists& sources, const TokenLists& targets, int64_t source_tokens,
                      int64_t target_tokens, const LexiconOptions& options = {});

}  // namespace tapestry
