// Translates the sources of a corpus, a piece at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/distil/translated_pieces.h"
#include "apps/tasks/answers/translator.h"
#include "data/corpora/corpus.h"

namespace tapestry {

/// Which of the n best translations of a source becomes a pair.
enum class KeepBestBy {
  kScore,  ///< the one that the search puts first
  kChrf,   ///< the most similar to the reference
  kNone,   ///< all of them
};
constexpr const char* name_of(KeepBestBy by) {
  switch (by) {
    case KeepBestBy::kScore:
      return "score";
    case KeepBestBy::kChrf:
      return "chrf";
    case KeepBestBy::kNone:
      return "none";
  }
  return nullptr;
}
inline constexpr auto kKeepBestBy = enumerators<KeepBestBy>();

struct ChoiceOptions {
  KeepBestBy keep_best_by = KeepBestBy::kScore;
  double most_times = 0;  ///< tokens of a translation for each of its source; 0: any number
  /// Share of repeated parts that a translation may have beyond that of its source; 1: any.
  double most_repeats = 0.3;
};

/// The share of the runs of four tokens that stood before in the text; 0 of a shorter text.
double share_of_repeats(const std::vector<int32_t>& tokens);

/// The usable pairs of several corpora, one after the other.
class PairsOfCorpora {
 public:
  /// Throws as open_corpus().
  explicit PairsOfCorpora(const std::vector<CorpusSpec>& specs);

  /// The next pairs, at most `count`; fewer at the end.
  std::vector<TextPair> next(int64_t count);
  /// Of the corpora that were read to their ends.
  const FilterCounts& counts() const { return counts_; }

 private:
  const std::vector<CorpusSpec>& specs_;
  size_t next_spec_ = 0;
  std::unique_ptr<PairReader> reader_;
  FilterCounts counts_;
};

class CorpusTranslator {
 public:
  /// Sources and translations of more than `longest` tokens, those around them counted, are left
  /// out, and sources of more than the models read.
  CorpusTranslator(const Translator& models, SearchOptions search, int64_t batch_size,
                   const ChoiceOptions& choice, int64_t longest);

  /// The pairs with what becomes of each; `first` is the number of the first one in the corpus,
  /// from 0. The result depends neither on batch_size nor on the number of threads.
  std::vector<TranslatedSource> translate(const std::vector<TextPair>& pairs, int64_t first) const;

 private:
  struct Batch {
    Sentences sentences = {};
    std::vector<size_t> places = {};  ///< of the sentences among the pairs
  };

  void translate(Batch& batch, const std::vector<TextPair>& pairs,
                 std::vector<TranslatedSource>& results) const;
  void choose(const std::vector<Hypothesis>& found, const std::string& reference,
              const std::vector<int32_t>& source, TranslatedSource& one) const;
  /// Nothing for a translation that may be kept.
  std::optional<LeftOut> fault_of(const Hypothesis& found, const std::string& text,
                                  const std::vector<int32_t>& source) const;

  const Translator& models_;
  const int64_t n_best_;
  SearchOptions search_;
  const int64_t batch_size_;
  const ChoiceOptions choice_;
  const int64_t longest_source_, longest_target_;  ///< without the tokens around them
};

}  // namespace tapestry
