// Prompts with two answers, of which one is better, for causal models.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches/batching.h"
#include "data/corpora/corpus.h"

namespace tapestry {

/// Token ids; an answer has its end.
struct PreferenceCorpus {
  TokenLists prompts;
  TokenLists chosen;
  TokenLists rejected;
  FilterCounts counts;
  std::vector<int64_t> parts;  ///< examples of each corpus of a list
  bool from_cache = false;     ///< nothing was encoded
  SpecialIds special = {};

  int64_t size() const { return prompts.size(); }
  /// A checksum of all ids.
  uint64_t checksum() const;
};

/// Reads and encodes preferences: of records by templates, each answer gets the end of the
/// vocabulary unless it has one; of talks, unless the chat template puts something behind answers.
/// A row is a prompt and one answer, with the beginning of a document. max_length limits it;
/// `truncate` cuts the beginning of a prompt, for both of its rows alike, and an example of which
/// an answer does not fit is dropped. Throws Error(kData) if nothing is left of a corpus,
/// Error(kConfig) for bad options, other kinds of corpora, and as compare_talks().
PreferenceCorpus load_preferences(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                                  const CorpusOptions& options, const LoadContext& context = {});

/// Two rows for each example: 2i with the better answer, 2i + 1 with the worse one.
struct PreferenceBatch {
  Tensor ids;          ///< (2B, T) int32
  Tensor targets;      ///< (2B, T): the next token if it belongs to the answer, else kNoTarget
  Tensor lengths;      ///< (2B): tokens of each row
  int64_t rows = 0;    ///< B
  int64_t tokens = 0;  ///< without padding: sum of the lengths
  std::vector<int64_t> indices;  ///< the number in the corpus of each example
};

PreferenceBatch rows_of(const PreferenceBatch& batch, int64_t begin, int64_t end);

/// Batches of similar length, epoch after epoch.
class PreferenceBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  PreferenceBatches(const PreferenceCorpus& corpus, const BatchOptions& options,
                    DataPosition start = {});

  PreferenceBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const PreferenceCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
