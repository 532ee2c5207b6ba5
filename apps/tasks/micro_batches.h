// The batches of an update as the tasks hold them: cut into parts that go through the model one
// after the other, and shown to people.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "data/batching.h"
#include "data/block_batching.h"
#include "data/image_batching.h"
#include "data/labelled.h"
#include "data/prompts.h"
#include "data/questions.h"
#include "data/tokenizer.h"

namespace tapestry {

inline int64_t rows_in(const TranslationBatch& batch) { return batch.sentences; }
template <class Batch>
int64_t rows_in(const Batch& batch) {
  return batch.rows;
}

/// Rows [begin, end) of a batch, with their token counts; the tensors share storage.
TranslationBatch rows_of(const TranslationBatch& batch, int64_t begin, int64_t end);
BlockBatch rows_of(const BlockBatch& batch, int64_t begin, int64_t end);
PromptBatch rows_of(const PromptBatch& batch, int64_t begin, int64_t end);
LabelledBatch rows_of(const LabelledBatch& batch, int64_t begin, int64_t end);
ImageBatch rows_of(const ImageBatch& batch, int64_t begin, int64_t end);
QuestionBatch rows_of(const QuestionBatch& batch, int64_t begin, int64_t end);

/// Appends a batch, cut by rows into `parts` of about one size (at most as many as it has rows).
/// The loss of an update is a sum over all of its targets, so it is that of the whole batch.
template <class Batch>
void append_in_parts(Batch batch, int64_t parts, std::vector<Batch>& update) {
  const int64_t rows = rows_in(batch);
  parts = std::min(parts, rows);
  if (parts <= 1) {
    update.push_back(std::move(batch));
    return;
  }
  for (int64_t part = 0; part < parts; ++part) {
    update.push_back(rows_of(batch, rows * part / parts, rows * (part + 1) / parts));
  }
}

// A text for each row.

std::vector<std::string> texts_of(const TranslationBatch& batch, const TokenizerPair& tokenizers);
std::vector<std::string> texts_of(const BlockBatch& batch, const Tokenizer& tokenizer);
std::vector<std::string> texts_of(const PromptBatch& batch, const Tokenizer& tokenizer);
std::vector<std::string> texts_of(const LabelledBatch& batch, const Tokenizer& tokenizer,
                                  const std::vector<std::string>& labels);
std::vector<std::string> texts_of(const ImageBatch& batch, const std::vector<std::string>& labels);
std::vector<std::string> texts_of(const QuestionBatch& batch, const Tokenizer& tokenizer);

}  // namespace tapestry
