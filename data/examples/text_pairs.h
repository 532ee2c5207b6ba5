// Pairs of texts, each side a row of an encoder: those that belong together (questions with
// answers, sentences with translations), maybe with a text that does not, or with a number that
// says how alike both are.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "data/batches/batching.h"
#include "data/batches/framed_rows.h"

namespace tapestry {

/// Pairs with the numbers of their texts: sources with equal tokens have one number, and so have
/// targets and negatives.
struct TextPairCorpus : ParallelCorpus {
  SpecialIds special = {};
  TokenLists negatives;  ///< of negative_column, as encoded as targets; or none
  TokenLists scores;     ///< of score_column, one float each, as bits; or none
  std::vector<int64_t> source_numbers, target_numbers, negative_numbers;

  bool has_negatives() const { return negatives.size() > 0; }
  float score(int64_t i) const { return std::bit_cast<float>(scores[i][0]); }

  TextFrame frame() const { return special.classified(); }
};

/// Reads and encodes pairs with the one tokenizer of both sides. All corpora have a negative_column
/// or none, and likewise a score_column. Throws as load_parallel(), and Error(kConfig) for two
/// tokenizers.
TextPairCorpus load_text_pairs(const std::vector<CorpusSpec>& specs,
                               const TokenizerPair& tokenizers, const CorpusOptions& options,
                               const LoadContext& context = {});

struct TextPairBatch {
  FramedRows source, target;
  FramedRows negative = {};        ///< without tensors where the corpus has none
  std::vector<float> scores = {};  ///< of each row; or none
  int64_t rows = 0;                ///< B
  std::vector<int64_t> indices;    ///< the number in the corpus of each row's pair
};

/// Batches of similar length, epoch after epoch.
class TextPairBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  TextPairBatches(const TextPairCorpus& corpus, const BatchOptions& options,
                  DataPosition start = {});

  TextPairBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const TextPairCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
