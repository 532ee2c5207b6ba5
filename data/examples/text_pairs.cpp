#include "data/examples/text_pairs.h"

#include <unordered_map>

#include "core/base/error.h"

namespace tapestry {
namespace {

// Equal numbers for equal lists, in the order of the first of each.
std::vector<int64_t> numbers_of(const TokenLists& lists) {
  std::unordered_map<std::string_view, int64_t> found;
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < lists.size(); ++i) {
    const auto list = lists[i];
    const std::string_view bytes(reinterpret_cast<const char*>(list.data()), list.size_bytes());
    numbers.push_back(found.try_emplace(bytes, std::ssize(found)).first->second);
  }
  return numbers;
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
  static_cast<ParallelCorpus&>(corpus) =
      load_parallel(specs, tokenizers, options, corpus.frame().size(), context);
  corpus.source_numbers = numbers_of(corpus.source);
  corpus.target_numbers = numbers_of(corpus.target);
  return corpus;
}

TextPairBatches::TextPairBatches(const TextPairCorpus& corpus, const BatchOptions& options,
                                 DataPosition start)
    : corpus_(&corpus),
      walk_(EpochPlans::of_lengths(
                mixture_of(corpus.size(), corpus.parts, options),
                [&corpus, specials = corpus.frame().size()](int64_t, int64_t row) {
                  return RowLength{corpus.source.length(row) + specials,
                                   corpus.target.length(row) + specials};
                },
                options),
            start) {}

TextPairBatch TextPairBatches::next() {
  const auto pairs = walk_.next();
  const TextFrame frame = corpus_->frame();
  const int32_t filler = corpus_->special.filler();
  return {.source = framed_rows(corpus_->source, pairs, frame, filler),
          .target = framed_rows(corpus_->target, pairs, frame, filler),
          .rows = std::ssize(pairs),
          .indices = {pairs.begin(), pairs.end()}};
}

}  // namespace tapestry
