#include "data/batching.h"

#include <algorithm>
#include <iomanip>
#include <numeric>

#include "data/draws.h"

namespace tapestry {
namespace {

// A row has one token more than its pieces: eos of the source, bos or eos of the target.
int64_t source_length(const ParallelCorpus& corpus, int64_t i) {
  return corpus.source.length(i) + 1;
}
int64_t target_length(const ParallelCorpus& corpus, int64_t i) {
  return corpus.target.length(i) + 1;
}

// Sorts by the longer side, which decides the cost of a row, then by target length - source length,
// so that the widths of both sides change slowly along the order. The differences ascend and
// descend in turn, so that a batch which spans two lengths has similar ones. Stable: ties keep the
// shuffled order.
void sort_by_length(const RowLengths& lengths, std::vector<int64_t>& order) {
  const auto longer = [&](size_t i) { return std::max(lengths.source[i], lengths.target[i]); };
  const auto difference = [&](size_t i) { return lengths.target[i] - lengths.source[i]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    if (longer(i) != longer(j)) return longer(i) < longer(j);
    return longer(i) % 2 == 0 ? difference(i) < difference(j) : difference(i) > difference(j);
  });
}

void fill_row(int32_t* row, std::span<const int32_t> tokens, int64_t width) {
  std::copy(tokens.begin(), tokens.end(), row);
  std::fill(row + tokens.size(), row + width, kPadId);
}

}  // namespace

void BatchOptions::validate(const OptionReport& report) const {
  report.expect_one_of("batch_type", batch_type, kTypes);
  report.expect(batch_size >= 1, "batch_size", "must be at least 1, got ", batch_size, '.');
}

RowLengths lengths_of(const ParallelCorpus& corpus) {
  RowLengths lengths;
  for (int64_t i = 0; i < corpus.size(); ++i) {
    lengths.source.push_back(source_length(corpus, i));
    lengths.target.push_back(target_length(corpus, i));
  }
  return lengths;
}

EpochPlan::EpochPlan(const RowLengths& lengths, const BatchOptions& options, int64_t epoch)
    : order_(lengths.source.size()) {
  options.validate();
  const auto all = static_cast<int64_t>(order_.size());
  if (all == 0) fail(ErrorKind::kData, "[data] expected sentences to batch, got none.");
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (options.shuffle) shuffle(order_, draw_key(options.seed, epoch, "data.sentences"));
  sort_by_length(lengths, order_);

  const bool by_tokens = options.batch_type == "tokens";
  int64_t begin = 0, widest = 0;
  for (int64_t i = 0; i < all; ++i) {
    const auto pair = static_cast<size_t>(order_[static_cast<size_t>(i)]);
    const int64_t width = std::max(lengths.source[pair], lengths.target[pair]);
    if (by_tokens && width > options.batch_size) {
      fail(ErrorKind::kConfig, "[data] batch_size of ", options.batch_size,
           " tokens must hold every pair, pair ", pair + 1, " has ", width, " tokens on a side.");
    }
    const int64_t rows = i - begin + 1;
    const int64_t cost = by_tokens ? rows * std::max(widest, width) : rows;
    if (cost > options.batch_size) {
      ranges_.push_back({begin, i});
      begin = i;
      widest = 0;
    }
    widest = std::max(widest, width);
  }
  ranges_.push_back({begin, all});
  if (options.shuffle) shuffle(ranges_, draw_key(options.seed, epoch, "data.batches"));
}

EpochPlan EpochPlan::of_equal_rows(int64_t rows, int64_t batch_size, bool shuffled, uint64_t seed,
                                   int64_t epoch) {
  EpochPlan plan;
  plan.order_.resize(static_cast<size_t>(rows));
  std::iota(plan.order_.begin(), plan.order_.end(), int64_t{0});
  if (shuffled) shuffle(plan.order_, draw_key(seed, epoch, "data.rows"));
  for (int64_t begin = 0; begin < rows;) {
    const int64_t count = std::min(batch_size, rows - begin);
    plan.ranges_.push_back({begin, begin + count});
    begin += count;
  }
  return plan;
}

std::span<const int64_t> EpochPlan::batch(int64_t i) const {
  check(i >= 0 && i < batches(), "data", "batch must be in [0, ", batches(), "), got ", i, '.');
  const Range range = ranges_[static_cast<size_t>(i)];
  return {order_.data() + range.begin, static_cast<size_t>(range.end - range.begin)};
}

TranslationBatch make_translation_batch(const ParallelCorpus& corpus,
                                        std::span<const int64_t> indices) {
  const auto rows = static_cast<int64_t>(indices.size());
  check(rows > 0, "data", "expected a batch of at least one pair, got none.");
  TranslationBatch batch;
  int64_t source_width = 0, target_width = 0;
  for (const int64_t pair : indices) {
    source_width = std::max(source_width, source_length(corpus, pair));
    target_width = std::max(target_width, target_length(corpus, pair));
    batch.source_tokens += source_length(corpus, pair);
    batch.target_tokens += target_length(corpus, pair);
  }
  batch.sentences = rows;
  batch.indices.assign(indices.begin(), indices.end());
  batch.source = Tensor::empty({rows, source_width}, DType::kInt32);
  batch.source_lengths = Tensor::empty({rows}, DType::kInt32);
  batch.target_in = Tensor::empty({rows, target_width}, DType::kInt32);
  batch.target_out = Tensor::empty({rows, target_width}, DType::kInt32);
  batch.target_lengths = Tensor::empty({rows}, DType::kInt32);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t pair = indices[static_cast<size_t>(row)];
    int32_t* const source = batch.source.data<int32_t>() + row * source_width;
    int32_t* const in = batch.target_in.data<int32_t>() + row * target_width;
    int32_t* const out = batch.target_out.data<int32_t>() + row * target_width;
    fill_row(source, corpus.source[pair], source_width);
    source[corpus.source.length(pair)] = kEosId;
    in[0] = kBosId;
    fill_row(in + 1, corpus.target[pair], target_width - 1);
    fill_row(out, corpus.target[pair], target_width);
    out[corpus.target.length(pair)] = kEosId;
    batch.source_lengths.data<int32_t>()[row] = static_cast<int32_t>(source_length(corpus, pair));
    batch.target_lengths.data<int32_t>()[row] = static_cast<int32_t>(target_length(corpus, pair));
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

EpochWalk::EpochWalk(MakePlan make_plan, DataPosition start)
    : make_plan_(std::move(make_plan)), plan_(make_plan_(start.epoch)), position_(start) {
  if (start.epoch < 0 || start.batch < 0 || start.batch > plan_.batches()) {
    fail(ErrorKind::kData, "[data] epoch ", start.epoch, " has ", plan_.batches(),
         " batches, the saved position is batch ", start.batch,
         ": the data or batch_size changed.");
  }
}

std::span<const int64_t> EpochWalk::next() {
  if (position_.batch == plan_.batches()) {
    position_ = {position_.epoch + 1, 0};
    plan_ = make_plan_(position_.epoch);
  }
  return plan_.batch(position_.batch++);
}

TranslationBatches::TranslationBatches(const ParallelCorpus& corpus, const BatchOptions& options,
                                       DataPosition start)
    : corpus_(&corpus),
      walk_([&corpus, options](int64_t epoch) { return EpochPlan(corpus, options, epoch); },
            start) {}

}  // namespace tapestry
