// Batches of pairs, and how much of them is padding.
#include <algorithm>
#include <iomanip>
#include <memory>

#include "core/base/error.h"
#include "data/batches/batch_rows.h"
#include "data/batches/batching.h"

namespace tapestry {
namespace {

// The tokens of a pair in an epoch, without its frames. The spans may point into its own vectors,
// which a move keeps in their place.
struct PairTokens {
  PairTokens(PairTokens&&) = default;
  PairTokens(const ParallelCorpus& corpus, int64_t epoch, int64_t pair)
      : source(corpus.source[pair]), target(corpus.target[pair]) {
    if (corpus.variation == nullptr) return;
    corpus.variation->source(epoch, pair, source, varied_source);
    corpus.variation->target(epoch, pair, target, varied_target);
    source = varied_source;
    target = varied_target;
  }
  RowLength length(const PairRows& around) const {
    return {std::ssize(source) + around.source.size(), std::ssize(target) + around.target.size()};
  }

  std::vector<int32_t> varied_source, varied_target;
  std::span<const int32_t> source, target;
};

RowLength length_of(const ParallelCorpus& corpus, int64_t epoch, int64_t pair) {
  const auto& variation = corpus.variation;
  if (variation == nullptr || !variation->changes_lengths()) {
    return {corpus.source.length(pair) + corpus.rows.source.size(),
            corpus.target.length(pair) + corpus.rows.target.size()};
  }
  return PairTokens(corpus, epoch, pair).length(corpus.rows);
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
                        .alignment = rows(batch.alignment),
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
  if (corpus.has_alignments()) {
    batch.alignment = Tensor::zeros({rows, target_width, source_width}, DType::kFloat32);
  }
  return batch;
}

// Fills a row of TranslationBatch::alignment, which is 0. The tokens stand behind the beginnings of
// their frames, and target token t is at place t of target_out: it is predicted there.
void fill_alignment(const ParallelCorpus& corpus, int64_t pair, float* row, int64_t source_width) {
  const std::span<const int32_t> links = corpus.alignments[pair];
  const int64_t source = std::ssize(corpus.rows.source.before);
  const int64_t target = std::ssize(corpus.rows.target.before);
  std::vector<int32_t> counts;  // of the links of each target token
  for (size_t i = 1; i < links.size(); i += 2) {
    counts.resize(std::max(counts.size(), static_cast<size_t>(links[i]) + 1));
    ++counts[static_cast<size_t>(links[i])];
  }
  for (size_t i = 0; i + 1 < links.size(); i += 2) {
    const int32_t s = links[i], t = links[i + 1];
    row[(target + t) * source_width + source + s] =
        corpus.weight(pair) / static_cast<float>(counts[static_cast<size_t>(t)]);
  }
}

}  // namespace

TranslationBatch make_translation_batch(const ParallelCorpus& corpus,
                                        std::span<const int64_t> indices, int64_t epoch) {
  check(!indices.empty(), "data", "expected a batch of at least one pair, got none.");
  const PairRows& around = corpus.rows;
  std::vector<PairTokens> pairs;
  pairs.reserve(indices.size());
  std::vector<RowLength> lengths;
  for (const int64_t pair : indices) {
    lengths.push_back(pairs.emplace_back(corpus, epoch, pair).length(around));
  }
  TranslationBatch batch = empty_batch(corpus, lengths);
  batch.indices.assign(indices.begin(), indices.end());
  const int64_t source_width = batch.source.shape()[1], target_width = batch.target_in.shape()[1];
  for (int64_t row = 0; row < batch.rows; ++row) {
    const PairTokens& pair = pairs[static_cast<size_t>(row)];
    const RowLength& length = lengths[static_cast<size_t>(row)];
    int32_t* const source = batch.source.data<int32_t>() + row * source_width;
    int32_t* const in = batch.target_in.data<int32_t>() + row * target_width;
    int32_t* const out = batch.target_out.data<int32_t>() + row * target_width;
    fill_row(source, source + source_width, around.source, pair.source, around.source_filler);
    fill_row(out, out + target_width, around.target, pair.target, kNoTarget);
    in[0] = around.start;
    std::copy(out, out + length.target - 1, in + 1);
    std::fill(in + length.target, in + target_width, around.target_filler);
    batch.source_lengths.data<int32_t>()[row] = static_cast<int32_t>(length.source);
    batch.target_lengths.data<int32_t>()[row] = static_cast<int32_t>(length.target);
    const int64_t number = indices[static_cast<size_t>(row)];
    if (corpus.has_alignments()) {
      float* const shares = batch.alignment.data<float>() + row * target_width * source_width;
      fill_alignment(corpus, number, shares, source_width);
    }
    if (!corpus.has_weights()) continue;
    std::fill_n(batch.target_weights.data<float>() + row * target_width, target_width,
                corpus.weight(number));
  }
  return batch;
}

void PaddingReport::add(std::span<const RowLength> batch) {
  RowLength widest;
  for (const RowLength& row : batch) {
    widest.source = std::max(widest.source, row.source);
    widest.target = std::max(widest.target, row.target);
    source_tokens += row.source;
    target_tokens += row.target;
  }
  source_cells += widest.source * std::ssize(batch);
  target_cells += widest.target * std::ssize(batch);
  ++batches;
}

double PaddingReport::waste() const {
  const auto cells = static_cast<double>(source_cells + target_cells);
  return 1.0 - static_cast<double>(source_tokens + target_tokens) / cells;
}

std::string PaddingReport::summary() const {
  const auto percent = [](int64_t tokens, int64_t cells) {
    return 100.0 * (1.0 - static_cast<double>(tokens) / static_cast<double>(cells));
  };
  const std::string all =
      concat(batches, " batches, padding ", std::setiosflags(std::ios::fixed), std::setprecision(1),
             percent(source_tokens + target_tokens, source_cells + target_cells), " %");
  if (source_cells == target_cells && source_tokens == target_tokens) return all;
  return concat(all, std::setiosflags(std::ios::fixed), std::setprecision(1), ": ",
                percent(source_tokens, source_cells), " % of source, ",
                percent(target_tokens, target_cells), " % of target");
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

TranslationBatches::TranslationBatches(const ParallelCorpus& corpus, EpochPlans plans,
                                       const DataPosition& start)
    : corpus_(&corpus), walk_(std::move(plans), start) {}

TranslationBatch TranslationBatches::next() {
  const std::span<const int64_t> pairs = walk_.next();
  return make_translation_batch(*corpus_, pairs, walk_.position().epoch);
}

}  // namespace tapestry
