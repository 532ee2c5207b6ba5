// Batches for language models whose rows are one document each: no document sees another one.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches/batching.h"
#include "data/corpora/corpus.h"
#include "data/examples/block_batching.h"
#include "data/examples/masking.h"

namespace tapestry {

/// Rows of causal models: the beginning of a document and its text. The targets are the text and
/// its end.
class DocumentBatches {
 public:
  /// How many special tokens a row has besides its document, for load_text().
  static int64_t specials(const Tokenizer& tokenizer) {
    return std::ssize(tokenizer.special().document());
  }

  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  DocumentBatches(const TextCorpus& corpus, const Tokenizer& tokenizer, const BatchOptions& options,
                  DataPosition start = {});

  BlockBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const TextCorpus* corpus_;
  SpecialIds special_;
  EpochWalk walk_;
};

/// Rows of masked models: a document in the frame of the tokenizer. Every epoch draws a new mask;
/// without shuffle always that of epoch 0, so that validation stays the same.
class MaskedDocumentBatches {
 public:
  static int64_t specials(const Tokenizer& tokenizer) {
    return tokenizer.special().masked().size();
  }

  /// Like DocumentBatches; also throws Error(kConfig) as MaskingVocabulary does.
  MaskedDocumentBatches(const TextCorpus& corpus, const Tokenizer& tokenizer,
                        const BatchOptions& options, const MaskingOptions& masking,
                        DataPosition start = {});

  BlockBatch next();
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const TextCorpus* corpus_;
  MaskingVocabulary vocabulary_;
  TextFrame frame_;
  int32_t filler_;
  MaskingOptions masking_;
  bool anew_;  // each epoch has a mask of its own
  uint64_t seed_;
  EpochWalk walk_;
};

}  // namespace tapestry
