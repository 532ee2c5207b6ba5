#include "data/examples/text_pairs.h"

#include <cmath>
#include <unordered_map>

#include "core/base/error.h"
#include "data/corpora/encode_corpus.h"
#include "data/examples/row_corpus.h"

namespace tapestry {
namespace {

using Numbers = std::unordered_map<std::string_view, int64_t>;

// Equal numbers for equal lists, in the order of the first of each.
std::vector<int64_t> numbers_of(const TokenLists& lists, Numbers& found) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < lists.size(); ++i) {
    const auto list = lists[i];
    const std::string_view bytes(reinterpret_cast<const char*>(list.data()), list.size_bytes());
    numbers.push_back(found.try_emplace(bytes, std::ssize(found)).first->second);
  }
  return numbers;
}

// The pairs with their third column, negatives or the bits of scores.
void load_three(TextPairCorpus& corpus, const std::vector<CorpusSpec>& specs,
                const TokenizerPair& tokenizers, const CorpusOptions& options,
                const LoadContext& context) {
  options.validate();
  const bool scored = !specs[0].score_column.empty();
  const auto add = [=](const EncodedPair& pair, TableBuilder& rows) {
    const auto score = std::bit_cast<int32_t>(pair.text.score);
    if (scored) return rows.add({pair.source, pair.target, {&score, 1}});
    rows.add({pair.source, pair.target, pair.rejected});
  };
  const auto is_sound = [&](const TokenTable& rows) {
    bool sound = scored || rows.ids_are_below(2, tokenizers.source->vocab_size());
    for (int64_t i = 0; scored && sound && i < rows.rows(); ++i) {
      sound = rows.length(i, 2) == 1 && std::isfinite(std::bit_cast<float>(rows.list(i, 2)[0]));
    }
    return sound;
  };
  const auto table =
      load_table({.kind = scored ? "pairs-with-scores" : "pairs-with-negatives",
                  .columns = 3,
                  .specs = specs,
                  .source_tokenizer = *tokenizers.source,
                  .target_tokenizer = tokenizers.target.get(),
                  .rule = {options.max_length, options.overlong, corpus.frame().size()},
                  .add = add,
                  .is_sound = is_sound},
                 context);
  corpus.source = TokenLists(table, 0);
  corpus.target = TokenLists(table, 1);
  (scored ? corpus.scores : corpus.negatives) = TokenLists(table, 2);
  take_facts(*table, *tokenizers.source, corpus);
}

}  // namespace

TextPairCorpus load_text_pairs(const std::vector<CorpusSpec>& specs,
                               const TokenizerPair& tokenizers, const CorpusOptions& options,
                               const LoadContext& context) {
  if (!tokenizers.shared()) {
    fail(ErrorKind::kConfig,
         "[data] pairs of texts need one tokenizer for both sides, got one for each.");
  }
  TextPairCorpus corpus;
  corpus.special = tokenizers.source->special();
  check_not_empty(specs);
  check_column_of_all(specs, &CorpusSpec::negative_column, "negative_column");
  check_column_of_all(specs, &CorpusSpec::score_column, "score_column");
  if (specs[0].negative_column.empty() && specs[0].score_column.empty()) {
    static_cast<ParallelCorpus&>(corpus) =
        load_parallel(specs, tokenizers, options, corpus.frame().size(), context);
  } else {
    load_three(corpus, specs, tokenizers, options, context);
  }
  Numbers sources, targets;
  corpus.source_numbers = numbers_of(corpus.source, sources);
  corpus.target_numbers = numbers_of(corpus.target, targets);
  corpus.negative_numbers = numbers_of(corpus.negatives, targets);
  return corpus;
}

TextPairBatches::TextPairBatches(const TextPairCorpus& corpus, const BatchOptions& options,
                                 DataPosition start)
    : corpus_(&corpus),
      walk_(EpochPlans::of_lengths(
                mixture_of(corpus.size(), corpus.parts, options),
                [&corpus, specials = corpus.frame().size()](int64_t, int64_t row) {
                  const int64_t of_negative =
                      corpus.has_negatives() ? corpus.negatives.length(row) : 0;
                  return RowLength{corpus.source.length(row) + specials,
                                   std::max(corpus.target.length(row), of_negative) + specials};
                },
                options),
            start) {}

TextPairBatch TextPairBatches::next() {
  const auto pairs = walk_.next();
  const TextFrame frame = corpus_->frame();
  const int32_t filler = corpus_->special.filler();
  TextPairBatch batch{.source = framed_rows(corpus_->source, pairs, frame, filler),
                      .target = framed_rows(corpus_->target, pairs, frame, filler),
                      .rows = std::ssize(pairs),
                      .indices = {pairs.begin(), pairs.end()}};
  if (corpus_->has_negatives()) {
    batch.negative = framed_rows(corpus_->negatives, pairs, frame, filler);
  }
  if (corpus_->scores.size() > 0) {
    for (const int64_t pair : pairs) batch.scores.push_back(corpus_->score(pair));
  }
  return batch;
}

}  // namespace tapestry
