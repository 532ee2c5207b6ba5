#include "data/batching.h"

#include <algorithm>
#include <iomanip>
#include <numeric>

#include "data/draws.h"
#include "data/permutation.h"

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

int64_t width_of(const RowLength& length) { return std::max(length.source, length.target); }

// A row of a window, by the place that it has in the order of lengths.
struct Placed {
  uint64_t place;
  int64_t row;
};

// First the longer side, which decides the cost of a row, then target length - source length, so
// that the widths of both sides change slowly along the order. The differences ascend and descend
// in turn, so that a batch which spans two lengths has similar ones.
uint64_t place_of(const RowLength& length) {
  constexpr int64_t kMiddle = int64_t{1} << 31;  // lengths are below
  const int64_t width = width_of(length), difference = length.target - length.source;
  return static_cast<uint64_t>(width) << 32 |
         static_cast<uint64_t>(kMiddle + (width % 2 == 0 ? difference : -difference));
}
int64_t width_of(const Placed& placed) { return static_cast<int64_t>(placed.place >> 32); }

// Cuts rows of ascending widths into batches: counts the rows of a batch up to the first that it
// does not hold.
class BatchCutter {
 public:
  explicit BatchCutter(const BatchOptions& options)
      : by_tokens_(options.batch_type == "tokens"), size_(options.batch_size) {}

  // Whether a batch ends in front of this row.
  bool ends_before(int64_t width, int64_t row) {
    if (by_tokens_ && width > size_) {
      fail(ErrorKind::kConfig, "[data] batch_size of ", size_,
           " tokens must hold every pair, pair ", row + 1, " has ", width, " tokens on a side.");
    }
    ++rows_;
    const bool ends = (by_tokens_ ? rows_ * width : rows_) > size_;
    if (ends) rows_ = 1;
    return ends;
  }

 private:
  const bool by_tokens_;
  const int64_t size_;
  int64_t rows_ = 0;
};

// A part of an epoch, in places of its order.
struct Window {
  int64_t begin, end;
};

// About equal windows.
Window window_of(int64_t rows, int64_t windows, int64_t number) {
  return {rows * number / windows, rows * (number + 1) / windows};
}

int64_t windows_for(int64_t rows, int64_t window_rows) {
  return std::max<int64_t>(1, (rows + window_rows - 1) / window_rows);
}

void check_any(int64_t rows) {
  if (rows == 0) fail(ErrorKind::kData, "[data] expected sentences to batch, got none.");
}

// What the windows of the epochs of one corpus have in common.
struct LengthPlanner {
  Mixture mixture;
  LengthOf length;
  BatchOptions options;

  int64_t windows(const EpochRows& rows) const {
    return options.shuffle ? windows_for(rows.size(), options.window_rows) : 1;
  }

  // Calls f(row, length) for the rows of a window, in their random order.
  template <class F>
  void for_each_row(int64_t epoch, int64_t window, F f) const {
    const EpochRows rows = mixture.epoch(epoch);
    check_any(rows.size());
    const int64_t all = windows(rows);
    const Window part = window_of(rows.size(), all, window);
    const PhiloxKey key = draw_key(options.seed, epoch, "data.sentences");
    const auto visit = [&](int64_t row) { f(row, length(epoch, row)); };
    if (all > 1) {
      const Permutation order(rows.size(), key);
      for (int64_t i = part.begin; i < part.end; ++i) visit(rows[order(i)]);
    } else {
      std::vector<int64_t> order(static_cast<size_t>(rows.size()));
      std::iota(order.begin(), order.end(), int64_t{0});
      if (options.shuffle) shuffle(order, key);
      for (const int64_t i : order) visit(rows[i]);
    }
  }

  std::vector<Placed> sorted_rows(int64_t epoch, int64_t window) const {
    std::vector<Placed> placed;
    for_each_row(epoch, window, [&](int64_t row, const RowLength& row_length) {
      placed.push_back({place_of(row_length), row});
    });
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Placed& a, const Placed& b) { return a.place < b.place; });
    return placed;
  }

  // The widths alone decide where batches end: no order is needed.
  int64_t batches(int64_t epoch, int64_t window) const {
    std::vector<int64_t> rows_of_width;
    for_each_row(epoch, window, [&](int64_t row, const RowLength& row_length) {
      const auto width = static_cast<size_t>(width_of(row_length));
      if (width >= rows_of_width.size()) rows_of_width.resize(width + 1);
      if (rows_of_width[width]++ == 0) BatchCutter(options).ends_before(width_of(row_length), row);
    });
    BatchCutter cutter(options);
    int64_t batches = 1;
    for (size_t width = 0; width < rows_of_width.size(); ++width) {
      for (int64_t i = 0; i < rows_of_width[width]; ++i) {
        batches += cutter.ends_before(static_cast<int64_t>(width), 0) ? 1 : 0;
      }
    }
    return batches;
  }
};

// Shuffles the batches of a window, those of the first as they were before there were windows.
template <class Range>
void shuffle_batches(std::vector<Range>& ranges, uint64_t seed, int64_t epoch, int64_t window) {
  PhiloxKey key = draw_key(seed, epoch, "data.batches");
  key.stream += static_cast<uint32_t>(window);
  shuffle(ranges, key);
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

void BatchOptions::validate(const OptionReport& report) const {
  report.expect_one_of("batch_type", batch_type, kTypes);
  report.expect(batch_size >= 1, "batch_size", "must be at least 1, got ", batch_size, '.');
}

Mixture mixture_of(int64_t rows, const std::vector<int64_t>& parts, const BatchOptions& options) {
  return options.shuffle ? Mixture(rows, parts, options.mix, options.seed) : Mixture(rows);
}

EpochPlans EpochPlans::of_lengths(Mixture rows, LengthOf length, const BatchOptions& options) {
  options.validate();
  const auto planner = std::make_shared<const LengthPlanner>(
      LengthPlanner{std::move(rows), std::move(length), options});
  EpochPlans plans;
  plans.windows = [planner](int64_t epoch) {
    return planner->windows(planner->mixture.epoch(epoch));
  };
  plans.batches = [planner](int64_t epoch, int64_t window) {
    return planner->batches(epoch, window);
  };
  plans.plan = [planner](int64_t epoch, int64_t window) {
    const BatchOptions& options = planner->options;
    EpochPlan plan;
    BatchCutter cutter(options);
    int64_t begin = 0;
    for (const Placed& placed : planner->sorted_rows(epoch, window)) {
      const int64_t at = std::ssize(plan.order_);
      if (cutter.ends_before(width_of(placed), placed.row)) {
        plan.ranges_.push_back({begin, at});
        begin = at;
      }
      plan.order_.push_back(placed.row);
    }
    plan.ranges_.push_back({begin, std::ssize(plan.order_)});
    if (options.shuffle) shuffle_batches(plan.ranges_, options.seed, epoch, window);
    return plan;
  };
  return plans;
}

EpochPlans EpochPlans::of_equal_rows(std::function<int64_t(int64_t epoch)> rows, int64_t batch_size,
                                     bool shuffled, uint64_t seed, int64_t window_rows) {
  if (batch_size < 1) {
    fail(ErrorKind::kConfig, "[data] batch_size must be at least 1, got ", batch_size, '.');
  }
  // Windows end where batches do.
  struct Cut {
    int64_t rows, windows, batches;
  };
  const auto cut_of = [=](int64_t epoch) {
    const int64_t all = rows(epoch);
    return Cut{all, windows_for(all, window_rows), (all + batch_size - 1) / batch_size};
  };
  const auto batches_of = [cut_of](int64_t epoch, int64_t window) {
    const Cut cut = cut_of(epoch);
    return window_of(cut.batches, cut.windows, window);
  };
  EpochPlans plans;
  plans.windows = [cut_of](int64_t epoch) { return cut_of(epoch).windows; };
  plans.batches = [batches_of](int64_t epoch, int64_t window) {
    const Window batches = batches_of(epoch, window);
    return batches.end - batches.begin;
  };
  plans.plan = [=](int64_t epoch, int64_t window) {
    const Cut cut = cut_of(epoch);
    const Window batches = batches_of(epoch, window);
    const int64_t begin = batches.begin * batch_size;
    const int64_t end = std::min(batches.end * batch_size, cut.rows);
    EpochPlan plan;
    plan.order_.resize(static_cast<size_t>(end - begin));
    std::iota(plan.order_.begin(), plan.order_.end(), begin);
    const PhiloxKey key = draw_key(seed, epoch, "data.rows");
    if (shuffled && cut.windows == 1) shuffle(plan.order_, key);
    if (shuffled && cut.windows > 1) {
      const Permutation order(cut.rows, key);
      for (int64_t& row : plan.order_) row = order(row);
    }
    for (int64_t at = 0; at < end - begin; at += batch_size) {
      plan.ranges_.push_back({at, std::min(at + batch_size, end - begin)});
    }
    return plan;
  };
  return plans;
}

EpochPlan::EpochPlan(const ParallelCorpus& corpus, const BatchOptions& options, int64_t epoch) {
  BatchOptions at_once = options;
  at_once.window_rows = std::max<int64_t>(1, corpus.size());
  *this = EpochPlans::of_lengths(
              Mixture(corpus.size()),
              [&corpus](int64_t, int64_t row) { return length_of(corpus, row); }, at_once)
              .plan(epoch, 0);
}

std::span<const int64_t> EpochPlan::batch(int64_t i) const {
  check(i >= 0 && i < batches(), "data", "batch must be in [0, ", batches(), "), got ", i, '.');
  const Range range = ranges_[static_cast<size_t>(i)];
  return {order_.data() + range.begin, static_cast<size_t>(range.end - range.begin)};
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
    const int64_t length = target_length(corpus, pair);
    fill_row(source, source + source_width, around.source, corpus.source[pair],
             around.source_filler);
    fill_row(out, out + target_width, around.target, corpus.target[pair], kNoTarget);
    in[0] = around.start;
    std::copy(out, out + length - 1, in + 1);
    std::fill(in + length, in + target_width, around.target_filler);
    batch.source_lengths.data<int32_t>()[row] = static_cast<int32_t>(source_length(corpus, pair));
    batch.target_lengths.data<int32_t>()[row] = static_cast<int32_t>(length);
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

EpochWalk::EpochWalk(EpochPlans plans, DataPosition start)
    : plans_(std::move(plans)), position_{start.epoch, 0} {
  const bool possible = start.epoch >= 0 && start.batch >= 0;
  int64_t windows = possible ? plans_.windows(start.epoch) : 0;
  // The plan of the first window is made at once, so that its errors come here.
  if (windows == 1) plan_ = plans_.plan(start.epoch, 0);
  for (; window_ < windows; ++window_) {
    count_ = plan_ ? plan_->batches() : plans_.batches(start.epoch, window_);
    if (start.batch <= first_ + count_) break;
    first_ += count_;
  }
  if (!possible || window_ == windows) {
    fail(ErrorKind::kData, "[data] epoch ", start.epoch, " has ", first_,
         " batches, the saved position is batch ", start.batch,
         ": the data or batch_size changed.");
  }
  position_ = start;
}

void EpochWalk::enter_next_window() {
  first_ += count_;
  count_ = 0;
  plan_.reset();
  if (++window_ < plans_.windows(position_.epoch)) return;
  position_ = {position_.epoch + 1, 0};
  window_ = first_ = 0;
}

std::span<const int64_t> EpochWalk::next() {
  if (at_window_end()) enter_next_window();
  if (!plan_) {
    plan_ = plans_.plan(position_.epoch, window_);
    count_ = plan_->batches();
  }
  return plan_->batch(position_.batch++ - first_);
}

void EpochWalk::skip(int64_t batches) {
  while (batches > 0) {
    if (at_window_end()) {
      enter_next_window();
      count_ = plans_.batches(position_.epoch, window_);
    }
    const int64_t here = std::min(batches, first_ + count_ - position_.batch);
    position_.batch += here;
    batches -= here;
  }
}

int64_t EpochWalk::batches_in_epoch() const {
  int64_t batches = first_ + count_;
  for (int64_t window = window_ + 1; window < plans_.windows(position_.epoch); ++window) {
    batches += plans_.batches(position_.epoch, window);
  }
  return batches;
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
