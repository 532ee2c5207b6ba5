// How well a model's attention aligns words, against alignments by people or by a statistical
// aligner.
#pragma once

#include <vector>

#include "apps/tasks/answers/alignment.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/evaluation.h"
#include "data/corpora/word_links.h"

namespace tapestry {

/// Counts of links over sentences, for the alignment error rate (Och and Ney 2003).
struct AlignmentError {
  int64_t found = 0;
  int64_t sure = 0;            ///< of the gold
  int64_t found_sure = 0;      ///< found ones that are sure
  int64_t found_possible = 0;  ///< found ones that are sure or possible

  /// A pair of the gold that is both sure and possible is sure.
  void add(const Alignment& alignment, const std::vector<WordLink>& gold);
  /// 1 - (found_sure + found_possible) / (found + sure); 0 without any link.
  double rate() const;
  double precision() const;  ///< found_possible / found; 1 without a found one
  double recall() const;     ///< found_sure / sure; 1 without a sure one
};

/// The alignments of the pairs of a corpus with its alignments as gold: each target is read as if
/// the model had written it. `layer` as in source_attention(). A text that is longer than the model
/// can read is cut, and lines of which a side is empty are left out.
Evaluation evaluate_alignment(const Translator& translator, const CorpusSpec& corpus, int64_t layer,
                              int64_t batch_sentences);

}  // namespace tapestry
