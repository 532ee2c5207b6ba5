#include "data/examples/preferences.h"

#include <xxhash.h>

#include <algorithm>

#include "core/base/error.h"
#include "data/batches/batch_rows.h"
#include "data/chat/chat_format.h"
#include "data/corpora/encode_corpus.h"
#include "data/examples/row_corpus.h"

namespace tapestry {
namespace {

// Special tokens in front of a row, whose last token is never read.
int64_t specials_of(const SpecialIds& special) { return std::ssize(special.document()) - 1; }

int64_t length_before(const PreferenceCorpus& corpus, int64_t i) {
  const std::span<const int32_t> prompt = corpus.prompts[i];
  return std::ssize(corpus.special.beginning_of(prompt)) + std::ssize(prompt);
}

int64_t row_length(const PreferenceCorpus& corpus, int64_t i, const TokenLists& answers) {
  return length_before(corpus, i) + answers.length(i) - 1;
}

int64_t longer_row(const PreferenceCorpus& corpus, int64_t i) {
  return std::max(row_length(corpus, i, corpus.chosen), row_length(corpus, i, corpus.rejected));
}

bool ends_answers(const CorpusSpec& spec) {
  if (!spec.compares_talks()) return true;
  return answer_end(spec.chat != nullptr ? *spec.chat : ChatFormat()).empty();
}

}  // namespace

uint64_t PreferenceCorpus::checksum() const {
  uint64_t sum = 0;
  for (int64_t i = 0; i < size(); ++i) {
    for (const TokenLists* lists : {&prompts, &chosen, &rejected}) {
      const auto ids = (*lists)[i];
      sum = XXH3_64bits_withSeed(ids.data(), ids.size_bytes(), sum);
    }
  }
  return sum;
}

PreferenceCorpus load_preferences(const std::vector<CorpusSpec>& specs, const Tokenizer& tokenizer,
                                  const CorpusOptions& options, const LoadContext& context) {
  options.validate();
  check_not_empty(specs);
  for (const CorpusSpec& spec : specs) {
    if (spec.kind() == CorpusSpec::Kind::kPreferences) continue;
    fail(ErrorKind::kConfig, "[data] expected a corpus with chosen and rejected answers, got ",
         spec.str(), '.');
  }
  const bool adds_end = ends_answers(specs.front());
  const auto answer = [&tokenizer, adds_end](const std::string& text) {
    std::vector<int32_t> ids = tokenizer.encode_continuation(text);
    if (adds_end && !tokenizer.special().has_end(ids)) ids.push_back(tokenizer.special().eos);
    return ids;
  };
  const auto table =
      load_table({.kind = "preferences",
                  .columns = 3,
                  .specs = specs,
                  .source_tokenizer = tokenizer,
                  .target_tokenizer = &tokenizer,
                  .rule = {options.max_length, options.overlong, specials_of(tokenizer.special()),
                           /*one_row=*/true},
                  .add =
                      [](const EncodedPair& pair, TableBuilder& rows) {
                        rows.add({pair.source, pair.target, pair.rejected});
                      },
                  .encode =
                      [&](EncodedPair& pair) {
                        pair.source = tokenizer.encode(pair.text.source);
                        pair.target = answer(pair.text.target);
                        pair.rejected = answer(pair.text.rejected);
                      }},
                 context);
  PreferenceCorpus corpus;
  corpus.prompts = TokenLists(table, 0);
  corpus.chosen = TokenLists(table, 1);
  corpus.rejected = TokenLists(table, 2);
  take_facts(*table, tokenizer, corpus);
  return corpus;
}

PreferenceBatches::PreferenceBatches(const PreferenceCorpus& corpus, const BatchOptions& options,
                                     DataPosition start)
    : corpus_(&corpus), walk_(walk_of_rows(corpus, longer_row, options, start)) {}

PreferenceBatch PreferenceBatches::next() {
  const auto examples = walk_.next();
  const SpecialIds& special = corpus_->special;
  PreferenceBatch batch;
  batch.rows = std::ssize(examples);
  batch.indices.assign(examples.begin(), examples.end());
  int64_t width = 0;
  for (const int64_t i : examples) width = std::max(width, longer_row(*corpus_, i));
  batch.ids = Tensor::full({2 * batch.rows, width}, special.filler(), DType::kInt32);
  batch.targets = Tensor::full({2 * batch.rows, width}, kNoTarget, DType::kInt32);
  batch.lengths = Tensor::empty({2 * batch.rows}, DType::kInt32);
  int64_t row = 0;
  for (const int64_t i : batch.indices) {
    const auto prompt = corpus_->prompts[i];
    const std::vector<int32_t> begin = special.beginning_of(prompt);
    for (const TokenLists* answers : {&corpus_->chosen, &corpus_->rejected}) {
      const auto answer = (*answers)[i];
      int32_t* const ids = batch.ids.data<int32_t>() + row * width;
      int32_t* at = std::copy(begin.begin(), begin.end(), ids);
      at = std::copy(prompt.begin(), prompt.end(), at);
      std::copy(answer.begin(), answer.end() - 1, at);
      // The last token of the prompt has the first one of the answer as its target.
      std::copy(answer.begin(), answer.end(),
                batch.targets.data<int32_t>() + row * width + (at - ids) - 1);
      const int64_t length = row_length(*corpus_, i, *answers);
      batch.lengths.data<int32_t>()[row++] = static_cast<int32_t>(length);
      batch.tokens += length;
    }
  }
  return batch;
}

PreferenceBatch rows_of(const PreferenceBatch& batch, int64_t begin, int64_t end) {
  const TakeRows examples{begin, end}, rows{2 * begin, 2 * end};
  PreferenceBatch part{.ids = rows(batch.ids),
                       .targets = rows(batch.targets),
                       .lengths = rows(batch.lengths),
                       .rows = examples.count(),
                       .indices = examples(batch.indices)};
  part.tokens = sum_of(part.lengths);
  return part;
}

}  // namespace tapestry
