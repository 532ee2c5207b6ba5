#include "data/examples/document_batching.h"

#include <algorithm>

#include "core/base/draws.h"

namespace tapestry {
namespace {

// A document of a causal model: every id but the last is read, every one but the first predicted.
std::vector<int32_t> causal_row(const SpecialIds& special, std::span<const int32_t> document) {
  std::vector<int32_t> ids = special.beginning_of(document);
  ids.insert(ids.end(), document.begin(), document.end());
  if (!special.has_end(document)) ids.push_back(special.eos);
  return ids;
}

int64_t causal_length(const SpecialIds& special, std::span<const int32_t> document) {
  const int64_t ids = std::ssize(special.beginning_of(document)) + std::ssize(document) +
                      (special.has_end(document) ? 0 : 1);
  return std::max<int64_t>(1, ids - 1);
}

EpochPlans plans_by(const TextCorpus& corpus, const BatchOptions& options,
                    std::function<int64_t(int64_t document)> length) {
  return EpochPlans::of_lengths(
      mixture_of(corpus.size(), corpus.parts, options),
      [length = std::move(length)](int64_t, int64_t document) {
        const int64_t ids = length(document);
        return RowLength{ids, ids};
      },
      options);
}

}  // namespace

DocumentBatches::DocumentBatches(const TextCorpus& corpus, const Tokenizer& tokenizer,
                                 const BatchOptions& options, DataPosition start)
    : corpus_(&corpus),
      special_(tokenizer.special()),
      walk_(plans_by(corpus, options,
                     [&corpus, special = special_](int64_t document) {
                       return causal_length(special, corpus.tokens[document]);
                     }),
            start) {}

BlockBatch DocumentBatches::next() {
  const auto documents = walk_.next();
  int64_t width = 1;
  for (const int64_t document : documents) {
    width = std::max(width, causal_length(special_, corpus_->tokens[document]));
  }
  BlockBatch batch = empty_batch(std::ssize(documents), width, special_.filler());
  batch.indices.assign(documents.begin(), documents.end());
  int64_t row = 0;
  for (const int64_t document : batch.indices) {
    const std::vector<int32_t> ids = causal_row(special_, corpus_->tokens[document]);
    const int64_t own = row++;
    if (ids.size() < 2) continue;  // only an end, which nothing predicts
    fill_row(batch, own, std::span(ids).first(ids.size() - 1), std::span(ids).subspan(1));
  }
  return with_lengths_if_needed(std::move(batch));
}

MaskedDocumentBatches::MaskedDocumentBatches(const TextCorpus& corpus, const Tokenizer& tokenizer,
                                             const BatchOptions& options,
                                             const MaskingOptions& masking, DataPosition start)
    : corpus_(&corpus),
      vocabulary_(tokenizer),
      frame_(tokenizer.special().masked()),
      filler_(tokenizer.special().filler()),
      masking_(masking),
      anew_(options.shuffle),
      seed_(options.seed),
      walk_(plans_by(corpus, options,
                     [&corpus, specials = frame_.size()](int64_t document) {
                       return corpus.tokens.length(document) + specials;
                     }),
            start) {
  masking.validate();
}

BlockBatch MaskedDocumentBatches::next() {
  const auto documents = walk_.next();
  const PhiloxKey key = draw_key(seed_, anew_ ? walk_.position().epoch : 0, "data.mask");
  int64_t width = 0;
  for (const int64_t document : documents) {
    width = std::max(width, corpus_->tokens.length(document) + frame_.size());
  }
  BlockBatch batch = empty_batch(std::ssize(documents), width, filler_);
  batch.indices.assign(documents.begin(), documents.end());
  int64_t row = 0;
  for (const int64_t document : batch.indices) {
    const auto text = corpus_->tokens[document];
    const std::vector<int32_t> ids = in_frame(frame_, {text.begin(), text.end()});
    const MaskedTokens masked = mask_tokens(ids, vocabulary_, masking_, key, document);
    fill_row(batch, row++, masked.ids, masked.targets);
  }
  return with_lengths_if_needed(std::move(batch));
}

}  // namespace tapestry
