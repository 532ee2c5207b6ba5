// Talks of a user with an assistant, for causal models: a row each, in which only the assistant's
// words are to be predicted.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches/batching.h"
#include "data/corpora/corpus.h"
#include "data/examples/block_batching.h"

namespace tapestry {

/// Row i is the beginning of a document (unless the talk has it) and tokens[i]. answers[i] has two
/// numbers for each answer: how many tokens before the end of the row it begins, and ends. A row
/// that was cut may lack the beginning of an answer.
struct TalkCorpus {
  TokenLists tokens;
  TokenLists answers;
  FilterCounts counts;
  std::vector<int64_t> parts;  ///< rows of each corpus of a list
  bool from_cache = false;     ///< nothing was encoded
  SpecialIds special = {};

  int64_t size() const { return tokens.size(); }
};

/// Reads and encodes talks by the templates of the specs. A template that puts nothing behind an
/// answer gets the end of the vocabulary there. max_length limits a row; `truncate` cuts its
/// beginning, and a talk whose last answer does not fit is dropped unless the whole text is learnt.
/// Throws Error(kData) if nothing is left of a corpus, Error(kConfig) for bad options and other
/// kinds of corpora.
TalkCorpus load_talks(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                      const CorpusOptions& options, const LoadContext& context = {});

/// Batches of similar length, epoch after epoch.
class TalkBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  TalkBatches(const TalkCorpus& corpus, const BatchOptions& options, DataPosition start = {});

  BlockBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const TalkCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
