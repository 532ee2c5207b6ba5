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

RowLength length_of(const ParallelCorpus& corpus, int64_t i) {
  return {source_length(corpus, i), target_length(corpus, i)};
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
              [&corpus](int64_t, int64_t row) { return length_of(corpus, row); }, at_once)
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

TranslationBatch make_translation_batch(const ParallelCorpus& corpus,
                                        std::span<const int64_t> indices) {
  const auto rows = static_cast<int64_t>(indices.size());
  const PairRows& around = corpus.rows;
  check(rows > 0, "data", "expected a batch of at least one pair, got none.");
  TranslationBatch batch;
  int64_t source_width = 0, target_width = 0;
  for (const int64_t pair : indices) {
    source_width = std::max(source_width, source_length(corpus, pair));
    target_width = std::max(target_width, target_length(corpus, pair));
    batch.source_tokens += source_length(corpus, pair);
    batch.target_tokens += target_length(corpus, pair);
  }
  batch.rows = rows;
  batch.indices.assign(indices.begin(), indices.end());
  batch.source = Tensor::empty({rows, source_width}, DType::kInt32);
  batch.source_lengths = Tensor::empty({rows}, DType::kInt32);
  batch.target_in = Tensor::empty({rows, target_width}, DType::kInt32);
  batch.target_out = Tensor::empty({rows, target_width}, DType::kInt32);
  batch.target_lengths = Tensor::empty({rows}, DType::kInt32);
  if (corpus.has_weights()) {
    batch.target_weights = Tensor::empty({rows, target_width}, DType::kFloat32);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t pair = indices[static_cast<size_t>(row)];
    int32_t* const source = batch.source.data<int32_t>() + row * source_width;
    int32_t* const in = batch.target_in.data<int32_t>() + row * target_width;
    int32_t* const out = batch.target_out.data<int32_t>() + row * target_width;
    const int64_t length = target_length(corpus, pair);
    fill_row(source, source + source_width, around.source, corpus.source[pair],
             around.source_filler);
    fill_row(out, out + target_width, around.target, corpus.target[pair], kNoTarget);
    in[0] = around.start;
    std::copy(out, out + length - 1, in + 1);
    std::fill(in + length, in + target_width, around.target_filler);
    batch.source_lengths.data<int32_t>()[row] = static_cast<int32_t>(source_length(corpus, pair));
    batch.target_lengths.data<int32_t>()[row] = static_cast<int32_t>(length);
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

PaddingReport padding_of(const ParallelCorpus& corpus, const EpochPlan& plan) {
  PaddingReport report;
  report.batches = plan.batches();
  for (int64_t i = 0; i < plan.batches(); ++i) {
    int64_t source_width = 0, target_width = 0;
    const auto pairs = plan.batch(i);
    for (const int64_t pair : pairs) {
      source_width = std::max(source_width, source_length(corpus, pair));
      target_width = std::max(target_width, target_length(corpus, pair));
      report.source_tokens += source_length(corpus, pair);
      report.target_tokens += target_length(corpus, pair);
    }
    report.source_cells += source_width * static_cast<int64_t>(pairs.size());
    report.target_cells += target_width * static_cast<int64_t>(pairs.size());
  }
  return report;
}

EpochPlans plans_of(const ParallelCorpus& corpus, const BatchOptions& options) {
  return EpochPlans::of_lengths(
      mixture_of(corpus.size(), corpus.parts, options),
      [&corpus](int64_t, int64_t row) { return length_of(corpus, row); }, options);
}

TranslationBatches::TranslationBatches(const ParallelCorpus& corpus, const BatchOptions& options,
                                       DataPosition start)
    : corpus_(&corpus), walk_(plans_of(corpus, options), start) {}

}  // namespace tapestry
