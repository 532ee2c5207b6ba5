#include "data/examples/prompts.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/batches/batch_rows.h"
#include "data/corpora/encode_corpus.h"
#include "data/examples/row_corpus.h"

namespace tapestry {
namespace {

// The answer without an end of its own.
std::span<const int32_t> answer_of(const PromptCorpus& corpus, int64_t i) {
  const std::span<const int32_t> answer = corpus.answers[i];
  return answer.first(answer.size() - (corpus.special.has_end(answer) ? 1 : 0));
}

// The answer's own end, or eos.
int32_t end_of(const PromptCorpus& corpus, int64_t i) {
  const std::span<const int32_t> answer = corpus.answers[i];
  return corpus.special.has_end(answer) ? answer.back() : corpus.special.eos;
}

// Tokens of a row before its answer.
int64_t length_before(const PromptCorpus& corpus, int64_t i) {
  const std::span<const int32_t> prompt = corpus.prompts[i];
  return std::ssize(corpus.special.beginning_of(prompt)) + std::ssize(prompt);
}

int64_t prompt_row_length(const PromptCorpus& corpus, int64_t i) {
  return length_before(corpus, i) + std::ssize(answer_of(corpus, i));
}

}  // namespace

PromptCorpus load_prompts(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                          const CorpusOptions& options, const LoadContext& context) {
  options.validate();
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) {
    if (spec.kind() == CorpusSpec::Kind::kPrompted) continue;
    fail(ErrorKind::kConfig, "[data] expected a corpus with prompt and answer, got ", spec.str(),
         '.');
  }
  const bool texts = options.keep_text;
  const auto table = load_table(
      {.kind = texts ? "prompts-with-text" : "prompts",
       .columns = texts ? 3 : 2,
       .specs = specs,
       .source_tokenizer = tokenizer,
       .target_tokenizer = &tokenizer,
       .rule = {options.max_length, options.overlong, specials_of_row(tokenizer.special()),
                /*one_row=*/true},
       .add =
           [texts](const EncodedPair& pair, TableBuilder& rows) {
             if (!texts) return rows.add({pair.source, pair.target});
             rows.add({pair.source, pair.target, ids_of_text(pair.text.target)});
           }},
      context);
  PromptCorpus corpus;
  corpus.prompts = TokenLists(table, 0);
  corpus.answers = TokenLists(table, 1);
  if (texts) corpus.answer_text = TextLists(table, 2);
  take_facts(*table, tokenizer, corpus);
  return corpus;
}

PromptBatches::PromptBatches(const PromptCorpus& corpus, const BatchOptions& options,
                             DataPosition start)
    : corpus_(&corpus), walk_(walk_of_rows(corpus, prompt_row_length, options, start)) {}

PromptBatch PromptBatches::next() {
  const auto examples = walk_.next();
  const SpecialIds& special = corpus_->special;
  PromptBatch batch;
  batch.rows = static_cast<int64_t>(examples.size());
  batch.indices.assign(examples.begin(), examples.end());
  int64_t width = 0;
  for (const int64_t i : examples) {
    const int64_t length = prompt_row_length(*corpus_, i);
    width = std::max(width, length);
    batch.tokens += length;
    batch.answer_tokens += std::ssize(answer_of(*corpus_, i)) + 1;
  }
  batch.ids = Tensor::full({batch.rows, width}, special.filler(), DType::kInt32);
  batch.targets = Tensor::full({batch.rows, width}, kNoTarget, DType::kInt32);
  batch.lengths = Tensor::empty({batch.rows}, DType::kInt32);
  batch.prompt_lengths = Tensor::empty({batch.rows}, DType::kInt32);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t i = examples[static_cast<size_t>(row)];
    const auto prompt = corpus_->prompts[i], answer = answer_of(*corpus_, i);
    const std::vector<int32_t> begin = special.beginning_of(prompt);
    int32_t* at = batch.ids.data<int32_t>() + row * width;
    at = std::copy(begin.begin(), begin.end(), at);
    at = std::copy(prompt.begin(), prompt.end(), at);
    std::copy(answer.begin(), answer.end(), at);
    // The last token of the prompt has the first one of the answer as its target.
    const int64_t before = length_before(*corpus_, i);
    int32_t* const target = batch.targets.data<int32_t>() + row * width + before - 1;
    *std::copy(answer.begin(), answer.end(), target) = end_of(*corpus_, i);
    batch.lengths.data<int32_t>()[row] = static_cast<int32_t>(prompt_row_length(*corpus_, i));
    batch.prompt_lengths.data<int32_t>()[row] = static_cast<int32_t>(before);
  }
  return batch;
}

PromptBatch rows_of(const PromptBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  PromptBatch part{.ids = rows(batch.ids),
                   .targets = rows(batch.targets),
                   .lengths = rows(batch.lengths),
                   .prompt_lengths = rows(batch.prompt_lengths),
                   .rows = rows.count(),
                   .indices = rows(batch.indices)};
  part.tokens = sum_of(part.lengths);
  part.answer_tokens = count_targets(part.targets);
  return part;
}

}  // namespace tapestry
