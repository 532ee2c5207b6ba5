// Batches of pairs, and how much of them is padding.
#include <algorithm>
#include <iomanip>
#include <memory>

#include "core/base/error.h"
#include "data/batches/batch_rows.h"
#include "data/batches/batching.h"

namespace tapestry {
namespace {

int64_t source_length(const ParallelCorpus& corpus, int64_t i) {
  return corpus.source.length(i) + corpus.rows.source.size();
}
int64_t target_length(const ParallelCorpus& corpus, int64_t i) {
  return corpus.target.length(i) + corpus.rows.target.size();
}

/// The tokens of a pair in an epoch, without its frames; valid until the next call.
class PairReading {
 public:
  PairReading(const ParallelCorpus& corpus, int64_t epoch) : corpus_(corpus), epoch_(epoch) {}

  std::span<const int32_t> source(int64_t pair) {
    if (corpus_.variation == nullptr) return corpus_.source[pair];
    corpus_.variation->source(epoch_, pair, corpus_.source[pair], source_);
    return source_;
  }
  std::span<const int32_t> target(int64_t pair) {
    if (corpus_.variation == nullptr) return corpus_.target[pair];
    corpus_.variation->target(epoch_, pair, corpus_.target[pair], target_);
    return target_;
  }
  RowLength length(int64_t pair) {
    const auto& variation = corpus_.variation;
    if (variation == nullptr || !variation->changes_lengths()) {
      return {source_length(corpus_, pair), target_length(corpus_, pair)};
    }
    return {std::ssize(source(pair)) + corpus_.rows.source.size(),
            std::ssize(target(pair)) + corpus_.rows.target.size()};
  }

 private:
  const ParallelCorpus& corpus_;
  const int64_t epoch_;
  std::vector<int32_t> source_, target_;
};

RowLength length_of(const ParallelCorpus& corpus, int64_t epoch, int64_t pair) {
  return PairReading(corpus, epoch).length(pair);
}

// A text in its frame, and `filler` up to `end`.
void fill_row(int32_t* row, int32_t* end, const TextFrame& frame, std::span<const int32_t> tokens,
              int32_t filler) {
  row = std::copy(frame.before.begin(), frame.before.end(), row);
  row = std::copy(tokens.begin(), tokens.end(), row);
  row = std::copy(frame.after.begin(), frame.after.end(), row);
  std::fill(row, end, filler);
}

}  // namespace

EpochPlan::EpochPlan(const ParallelCorpus& corpus, const BatchOptions& options, int64_t epoch) {
  BatchOptions at_once = options;
  at_once.window_rows = std::max<int64_t>(1, corpus.size());
  *this = EpochPlans::of_lengths(
              Mixture(corpus.size()),
              [&corpus](int64_t of_epoch, int64_t row) { return length_of(corpus, of_epoch, row); },
              at_once)
              .plan(epoch, 0);
}

double TranslationBatch::target_weight() const {
  if (!target_weights.defined()) return static_cast<double>(target_tokens);
  const int64_t width = target_weights.shape()[1];
  double sum = 0;
  for (int64_t row = 0; row < target_weights.shape()[0]; ++row) {
    sum += static_cast<double>(target_weights.data<float>()[row * width]) *
           target_lengths.data<int32_t>()[row];
  }
  return sum;
}

TranslationBatch rows_of(const TranslationBatch& batch, int64_t begin, int64_t end) {
  const TakeRows rows{begin, end};
  TranslationBatch part{.source = rows(batch.source),
                        .source_lengths = rows(batch.source_lengths),
                        .target_in = rows(batch.target_in),
                        .target_out = rows(batch.target_out),
                        .target_lengths = rows(batch.target_lengths),
                        .target_weights = rows(batch.target_weights),
                        .rows = rows.count(),
                        .indices = rows(batch.indices)};
  part.source_tokens = sum_of(part.source_lengths);
  part.target_tokens = sum_of(part.target_lengths);
  return part;
}

namespace {

// Room for rows of these lengths.
TranslationBatch empty_batch(const ParallelCorpus& corpus, const std::vector<RowLength>& lengths) {
  const int64_t rows = std::ssize(lengths);
  TranslationBatch batch;
  batch.rows = rows;
  int64_t source_width = 0, target_width = 0;
  for (const RowLength& length : lengths) {
    source_width = std::max(source_width, length.source);
    target_width = std::max(target_width, length.target);
    batch.source_tokens += length.source;
    batch.target_tokens += length.target;
  }
  batch.source = Tensor::empty({rows, source_width}, DType::kInt32);
  batch.source_lengths = Tensor::empty({rows}, DType::kInt32);
  batch.target_in = Tensor::empty({rows, target_width}, DType::kInt32);
  batch.target_out = Tensor::empty({rows, target_width}, DType::kInt32);
  batch.target_lengths = Tensor::empty({rows}, DType::kInt32);
  if (corpus.has_weights()) {
    batch.target_weights = Tensor::empty({rows, target_width}, DType::kFloat32);
  }
  return batch;
}

}  // namespace

TranslationBatch make_translation_batch(const ParallelCorpus& corpus,
                                        std::span<const int64_t> indices, int64_t epoch) {
  check(!indices.empty(), "data", "expected a batch of at least one pair, got none.");
  const PairRows& around = corpus.rows;
  PairReading reading(corpus, epoch);
  std::vector<RowLength> lengths;
  for (const int64_t pair : indices) lengths.push_back(reading.length(pair));
  TranslationBatch batch = empty_batch(corpus, lengths);
  batch.indices.assign(indices.begin(), indices.end());
  const int64_t source_width = batch.source.shape()[1], target_width = batch.target_in.shape()[1];
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t pair = indices[static_cast<size_t>(row)];
    const RowLength& length = lengths[static_cast<size_t>(row)];
    int32_t* const source = batch.source.data<int32_t>() + row * source_width;
    int32_t* const in = batch.target_in.data<int32_t>() + row * target_width;
    int32_t* const out = batch.target_out.data<int32_t>() + row * target_width;
    fill_row(source, source + source_width, around.source, reading.source(pair),
             around.source_filler);
    fill_row(out, out + target_width, around.target, reading.target(pair), kNoTarget);
    in[0] = around.start;
    std::copy(out, out + length.target - 1, in + 1);
    std::fill(in + length.target, in + target_width, around.target_filler);
    batch.source_lengths.data<int32_t>()[row] = static_cast<int32_t>(length.source);
    batch.target_lengths.data<int32_t>()[row] = static_cast<int32_t>(length.target);
    if (!corpus.has_weights()) continue;
    std::fill_n(batch.target_weights.data<float>() + row * target_width, target_width,
                corpus.weight(pair));
  }
  return batch;
}

double PaddingReport::waste() const {
  const auto cells = static_cast<double>(source_cells + target_cells);
  return 1.0 - static_cast<double>(source_tokens + target_tokens) / cells;
}

std::string PaddingReport::summary() const {
  const auto percent = [](int64_t tokens, int64_t cells) {
    return 100.0 * (1.0 - static_cast<double>(tokens) / static_cast<double>(cells));
  };
  return concat(batches, " batches, padding ", std::setiosflags(std::ios::fixed),
                std::setprecision(1),
                percent(source_tokens + target_tokens, source_cells + target_cells),
                " %: ", percent(source_tokens, source_cells), " % of source, ",
                percent(target_tokens, target_cells), " % of target");
}

PaddingReport padding_of(const ParallelCorpus& corpus, const EpochPlan& plan, int64_t epoch) {
  PaddingReport report;
  report.batches = plan.batches();
  PairReading reading(corpus, epoch);
  for (int64_t i = 0; i < plan.batches(); ++i) {
    int64_t source_width = 0, target_width = 0;
    const auto pairs = plan.batch(i);
    for (const int64_t pair : pairs) {
      const RowLength length = reading.length(pair);
      source_width = std::max(source_width, length.source);
      target_width = std::max(target_width, length.target);
      report.source_tokens += length.source;
      report.target_tokens += length.target;
    }
    report.source_cells += source_width * static_cast<int64_t>(pairs.size());
    report.target_cells += target_width * static_cast<int64_t>(pairs.size());
  }
  return report;
}

EpochPlans plans_of(const ParallelCorpus& corpus, const BatchOptions& options) {
  return EpochPlans::of_lengths(
      mixture_of(corpus.size(), corpus.parts, options),
      [&corpus](int64_t of_epoch, int64_t row) { return length_of(corpus, of_epoch, row); },
      options);
}

TranslationBatches::TranslationBatches(const ParallelCorpus& corpus, const BatchOptions& options,
                                       DataPosition start)
    : corpus_(&corpus), walk_(plans_of(corpus, options), start) {}

TranslationBatch TranslationBatches::next() {
  const std::span<const int64_t> pairs = walk_.next();
  return make_translation_batch(*corpus_, pairs, walk_.position().epoch);
}

}  // namespace tapestry
