// Prompts with answers, for causal models that learn to answer: rows of both, in which only the
// answer is to be predicted.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "data/batches/batching.h"
#include "data/corpora/corpus.h"

namespace tapestry {

/// Token ids without special ones. Row i is the beginning of a document (eos, or the tokenizer's
/// own unless the prompt has it), prompts[i], answers[i], eos (unless the answer has an end).
struct PromptCorpus {
  TokenLists prompts;
  TokenLists answers;
  TextLists answer_text;  ///< filled with keep_text only
  FilterCounts counts;
  std::vector<int64_t> parts;  ///< rows of each corpus of a list
  bool from_cache = false;     ///< nothing was encoded
  SpecialIds special = {};

  int64_t size() const { return prompts.size(); }
};

/// Reads and encodes corpora with a prompt and an answer. max_length limits eos, prompt and answer
/// together. `truncate` cuts the beginning of a prompt; an answer that does not fit is dropped.
/// Throws Error(kData) if nothing is left of a corpus or a record lacks a field, Error(kConfig) for
/// bad options or other kinds of corpora.
PromptCorpus load_prompts(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                          const CorpusOptions& options, const LoadContext& context = {});

/// Rows on the CPU; all tensors int32.
struct PromptBatch {
  Tensor ids;      ///< (B, T): beginning, prompt, answer, filled up
  Tensor targets;  ///< (B, T): the next token if it belongs to the answer or is eos, else kNoTarget
  Tensor lengths;  ///< (B): tokens of each row
  Tensor prompt_lengths;         ///< (B): tokens before the answer, the beginning included
  int64_t rows = 0;              ///< B
  int64_t tokens = 0;            ///< without padding: sum of the lengths
  int64_t answer_tokens = 0;     ///< targets
  std::vector<int64_t> indices;  ///< the number in the corpus of each row's example
};

PromptBatch rows_of(const PromptBatch& batch, int64_t begin, int64_t end);

/// Batches of similar length, epoch after epoch.
class PromptBatches {
 public:
  /// `corpus` must outlive this. Throws as EpochWalk and EpochPlan do.
  PromptBatches(const PromptCorpus& corpus, const BatchOptions& options, DataPosition start = {});

  PromptBatch next();
  /// After the batch returned last. A walk that starts here continues with the same batches.
  DataPosition position() const { return walk_.position(); }
  int64_t batches_in_epoch() const { return walk_.batches_in_epoch(); }
  void skip(int64_t batches) { walk_.skip(batches); }
  std::string summary() { return walk_.summary(); }

 private:
  const PromptCorpus* corpus_;
  EpochWalk walk_;
};

}  // namespace tapestry
