// Pairs of texts that belong together, each side a row of an encoder: questions with answers,
// sentences with translations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/batches/batching.h"
#include "data/batches/framed_rows.h"

namespace tapestry {

/// Pairs with the numbers of their texts: texts of one side with equal tokens have one number.
struct TextPairCorpus : ParallelCorpus {
  SpecialIds special = {};
  std::vector<int64_t> source_numbers, target_numbers;

  TextFrame frame() const { return special.classified(); }
};

/// Reads and encodes pairs with the one tokenizer of both sides. Throws as load_parallel(), and
/// Error(kConfig) for two tokenizers.
TextPairCorpus load_text_pairs(const std::vector<CorpusSpec>& specs,
                               const TokenizerPair& tokenizers, const CorpusOptions& options,
                               const LoadContext& context = {});

struct TextPairBatch {
  FramedRows source, target;
  int64_t rows = 0;              ///< B
  std::vector<int64_t> indices;  ///< the number in the corpus of each row's pair
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
