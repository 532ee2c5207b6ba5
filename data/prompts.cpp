#include "data/prompts.h"

#include <algorithm>

#include "core/error.h"
#include "data/encode_corpus.h"

namespace tapestry {
namespace {

// What begins a document stands in front; the last token of a row is never read.
int64_t specials_of(const SpecialIds& special) { return std::ssize(special.document()); }

int64_t row_length(const PromptCorpus& corpus, int64_t specials, int64_t i) {
  return specials + corpus.prompts.length(i) + corpus.answers.length(i);
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
  const auto table =
      load_table({.kind = texts ? "prompts-with-text" : "prompts",
                  .columns = texts ? 3 : 2,
                  .specs = specs,
                  .source_tokenizer = tokenizer,
                  .target_tokenizer = &tokenizer,
                  .rule = {options.max_length, options.overlong, specials_of(tokenizer.special()),
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
  corpus.counts = table->facts().counts;
  corpus.parts = table->facts().parts;
  corpus.from_cache = table->from_cache();
  corpus.special = tokenizer.special();
  return corpus;
}

PromptBatches::PromptBatches(const PromptCorpus& corpus, const BatchOptions& options,
                             DataPosition start)
    : corpus_(&corpus),
      walk_(EpochPlans::of_lengths(
                mixture_of(corpus.size(), corpus.parts, options),
                [&corpus, specials = specials_of(corpus.special)](int64_t, int64_t row) {
                  const int64_t length = row_length(corpus, specials, row);
                  return RowLength{length, length};
                },
                options),
            start) {}

PromptBatch PromptBatches::next() {
  const auto examples = walk_.next();
  const SpecialIds& special = corpus_->special;
  const std::vector<int32_t> begin = special.document();
  const int64_t specials = std::ssize(begin);
  PromptBatch batch;
  batch.rows = static_cast<int64_t>(examples.size());
  batch.indices.assign(examples.begin(), examples.end());
  int64_t width = 0;
  for (const int64_t i : examples) {
    width = std::max(width, row_length(*corpus_, specials, i));
    batch.tokens += row_length(*corpus_, specials, i);
    batch.answer_tokens += corpus_->answers.length(i) + 1;
  }
  batch.ids = Tensor::full({batch.rows, width}, special.filler(), DType::kInt32);
  batch.targets = Tensor::full({batch.rows, width}, kNoTarget, DType::kInt32);
  batch.lengths = Tensor::empty({batch.rows}, DType::kInt32);
  batch.prompt_lengths = Tensor::empty({batch.rows}, DType::kInt32);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t i = examples[static_cast<size_t>(row)];
    const auto prompt = corpus_->prompts[i], answer = corpus_->answers[i];
    int32_t* at = batch.ids.data<int32_t>() + row * width;
    at = std::copy(begin.begin(), begin.end(), at);
    at = std::copy(prompt.begin(), prompt.end(), at);
    std::copy(answer.begin(), answer.end(), at);
    // The last token of the prompt has the first one of the answer as its target.
    const int64_t before = specials + std::ssize(prompt);
    int32_t* const target = batch.targets.data<int32_t>() + row * width + before - 1;
    *std::copy(answer.begin(), answer.end(), target) = special.eos;
    batch.lengths.data<int32_t>()[row] = static_cast<int32_t>(row_length(*corpus_, specials, i));
    batch.prompt_lengths.data<int32_t>()[row] = static_cast<int32_t>(before);
  }
  return batch;
}

}  // namespace tapestry
