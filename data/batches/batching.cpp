#include "data/batches/batching.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>

#include "core/base/draws.h"
#include "core/base/progress.h"
#include "core/cpu/parallel.h"
#include "data/batches/epoch_window.h"
#include "data/corpora/permutation.h"

namespace tapestry {
namespace {

int64_t width_of(const RowLength& length) { return std::max(length.source, length.target); }

// A row of a window, by the place that it has in the order of lengths.
struct Placed {
  uint64_t place;
  int64_t row;
};

// First the longer side, which decides the cost of a row, then target length - source length, so
// that the widths of both sides change slowly along the order. The differences ascend and descend
// in turn, so that a batch which spans two lengths has similar ones.
constexpr int64_t kMiddle = int64_t{1} << 31;  // lengths are below
uint64_t place_of(const RowLength& length) {
  const int64_t width = width_of(length), difference = length.target - length.source;
  return static_cast<uint64_t>(width) << 32 |
         static_cast<uint64_t>(kMiddle + (width % 2 == 0 ? difference : -difference));
}
int64_t width_of(const Placed& placed) { return static_cast<int64_t>(placed.place >> 32); }
RowLength length_of(const Placed& placed) {
  const int64_t width = width_of(placed);
  const int64_t turned = static_cast<int64_t>(placed.place & 0xffffffff) - kMiddle;
  const int64_t difference = width % 2 == 0 ? turned : -turned;  // target - source
  return {width - std::max<int64_t>(0, difference), width + std::min<int64_t>(0, difference)};
}

// Cuts rows of ascending widths into batches: counts the rows of a batch up to the first that it
// does not hold.
class BatchCutter {
 public:
  explicit BatchCutter(const BatchOptions& options)
      : by_tokens_(options.batch_type == "tokens"), size_(options.batch_size) {}

  // True if a batch ends in front of this row.
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

void check_any(int64_t rows) {
  if (rows == 0) fail(ErrorKind::kData, "[data] expected sentences to batch, got none.");
}

// Shuffles the batches of a window. The first window's draws are those of versions without windows.
template <class Range>
void shuffle_batches(std::vector<Range>& ranges, uint64_t seed, int64_t epoch, int64_t window) {
  PhiloxKey key = draw_key(seed, epoch, "data.batches");
  key.stream += static_cast<uint32_t>(window);
  shuffle(ranges, key);
}

// The rows already taken from an epoch: all windows before one, and places in that window's random
// order.
struct TakenRows {
  int64_t epoch = -1;
  int64_t window = 0;
  std::vector<char> places;  // 1: taken

  bool all(int64_t of_epoch, int64_t of_window) const {
    return of_epoch == epoch && of_window < window;
  }
  bool has(int64_t of_epoch, int64_t of_window, int64_t place) const {
    return of_epoch == epoch && of_window == window && !places.empty() &&
           places[static_cast<size_t>(place)] != 0;
  }
};

}  // namespace

// Shared by the windows of all epochs of one corpus.
struct LengthPlanner {
  Mixture mixture;
  LengthOf length;
  BatchOptions options;
  TakenRows taken = {};

  int64_t windows(const EpochRows& rows) const {
    return options.shuffle ? windows_of_rows(rows.size(), options.window_rows) : 1;
  }

  // A row of a window with its place in the window's random order.
  struct Row {
    int64_t place, row;
  };

  // Those that are left, in that order.
  std::vector<Row> rows_left(int64_t epoch, int64_t window) const {
    std::vector<Row> left;
    const EpochRows rows = mixture.epoch(epoch);
    check_any(rows.size());
    const int64_t all = windows(rows);
    if (taken.all(epoch, window)) return left;
    const EpochWindow part = epoch_window(rows.size(), all, window);
    const PhiloxKey key = draw_key(options.seed, epoch, "data.sentences");
    int64_t place = 0;
    const auto visit = [&](int64_t row) {
      if (!taken.has(epoch, window, place)) left.push_back({place, row});
      ++place;
    };
    if (all > 1) {
      const Permutation order(rows.size(), key);
      for (int64_t i = part.begin; i < part.end; ++i) visit(rows[order(i)]);
    } else {
      std::vector<int64_t> order(static_cast<size_t>(rows.size()));
      std::iota(order.begin(), order.end(), int64_t{0});
      if (options.shuffle) shuffle(order, key);
      for (const int64_t i : order) visit(rows[i]);
    }
    return left;
  }

  // Sampled texts are drawn to know their lengths, so all threads measure.
  std::vector<RowLength> lengths_of(int64_t epoch, const std::vector<Row>& rows) const {
    constexpr int64_t kGrain = 1024;
    std::vector<RowLength> lengths(rows.size());
    Progress progress("planning the batches", std::ssize(rows), "rows");
    parallel_ranges(std::ssize(rows), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        lengths[at] = length(epoch, rows[at].row);
      }
      progress.add(end - begin);
    });
    return lengths;
  }

  // Cuts a window into batches, and calls add(number, length) for the rows in the order of the
  // batches before those are shuffled; number_of(row) is the row's number.
  template <class Range, class Number, class Add>
  std::vector<Range> cut(int64_t epoch, int64_t window, Number number_of, Add add) const {
    const std::vector<Row> rows = rows_left(epoch, window);
    const std::vector<RowLength> lengths = lengths_of(epoch, rows);
    std::vector<Placed> placed;
    for (size_t i = 0; i < rows.size(); ++i) {
      placed.push_back({place_of(lengths[i]), number_of(rows[i])});
    }
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Placed& a, const Placed& b) { return a.place < b.place; });
    std::vector<Range> ranges;
    BatchCutter cutter(options);
    int64_t begin = 0, at = 0;
    for (const Placed& row : placed) {
      if (cutter.ends_before(width_of(row), row.row)) {
        ranges.push_back({begin, at});
        begin = at;
      }
      add(row.row, length_of(row));
      ++at;
    }
    if (at > begin) ranges.push_back({begin, at});
    if (options.shuffle) shuffle_batches(ranges, options.seed, epoch, window);
    return ranges;
  }

  // Only the widths decide where batches end, so no order is needed.
  int64_t batches(int64_t epoch, int64_t window) const {
    std::vector<int64_t> rows_of_width;
    const std::vector<Row> rows = rows_left(epoch, window);
    const std::vector<RowLength> lengths = lengths_of(epoch, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto width = static_cast<size_t>(width_of(lengths[i]));
      if (width >= rows_of_width.size()) rows_of_width.resize(width + 1);
      if (rows_of_width[width]++ == 0) {
        BatchCutter(options).ends_before(width_of(lengths[i]), rows[i].row);
      }
    }
    BatchCutter cutter(options);
    int64_t batches = rows_of_width.empty() ? 0 : 1;
    for (size_t width = 0; width < rows_of_width.size(); ++width) {
      for (int64_t i = 0; i < rows_of_width[width]; ++i) {
        batches += cutter.ends_before(static_cast<int64_t>(width), 0) ? 1 : 0;
      }
    }
    return batches;
  }

  // The same planner without the rows already taken.
  LengthPlanner without_taken(const DataPosition& start) const {
    LengthPlanner then = *this;
    then.taken.epoch = start.epoch;
    const int64_t windows_in_epoch = windows(mixture.epoch(start.epoch));
    for (const TakenBatches& part : start.before) {
      then.options.batch_type = part.batch_type;
      then.options.batch_size = part.batch_size;
      then.take(part.batches, windows_in_epoch);
    }
    then.options = options;
    return then;
  }

 private:
  void take(int64_t batches_to_take, int64_t windows_in_epoch) {
    int64_t left = batches_to_take;
    while (true) {
      const int64_t here = batches(taken.epoch, taken.window);
      if (left <= here) break;
      left -= here;
      if (taken.window + 1 == windows_in_epoch) {
        fail_position(taken.epoch, batches_to_take - left, batches_to_take);
      }
      ++taken.window;
      taken.places.clear();
    }
    struct Range {
      int64_t begin, end;
    };
    std::vector<int64_t> places;
    const auto ranges = cut<Range>(
        taken.epoch, taken.window, [](const Row& row) { return row.place; },
        [&](int64_t place, const RowLength&) { places.push_back(place); });
    const EpochRows rows = mixture.epoch(taken.epoch);
    const EpochWindow window = epoch_window(rows.size(), windows_in_epoch, taken.window);
    taken.places.resize(static_cast<size_t>(window.end - window.begin));
    for (int64_t i = 0; i < left; ++i) {
      const Range range = ranges[static_cast<size_t>(i)];
      for (int64_t at = range.begin; at < range.end; ++at) {
        taken.places[static_cast<size_t>(places[static_cast<size_t>(at)])] = 1;
      }
    }
  }
};

void BatchOptions::validate(const OptionReport& report) const {
  report.expect_one_of("batch_type", batch_type, kTypes);
  report.expect(batch_size >= 1, "batch_size", "must be at least 1, got ", batch_size, '.');
}

Mixture mixture_of(int64_t rows, const std::vector<int64_t>& parts, const BatchOptions& options) {
  return options.shuffle ? Mixture(rows, parts, options.mix, options.seed) : Mixture(rows);
}

EpochPlans EpochPlans::of_lengths(Mixture rows, LengthOf length, const BatchOptions& options) {
  options.validate();
  return of_planner(std::make_shared<const LengthPlanner>(
      LengthPlanner{.mixture = std::move(rows), .length = std::move(length), .options = options}));
}

namespace {

// The plan that was made last.
class LastPlan {
 public:
  // Null if it is of another window.
  std::shared_ptr<const EpochPlan> of(int64_t epoch, int64_t window) const {
    const std::scoped_lock lock(mutex_);
    return epoch == epoch_ && window == window_ ? plan_ : nullptr;
  }
  void keep(int64_t epoch, int64_t window, const EpochPlan& plan) {
    const std::scoped_lock lock(mutex_);
    epoch_ = epoch, window_ = window, plan_ = std::make_shared<const EpochPlan>(plan);
  }

 private:
  mutable std::mutex mutex_;
  int64_t epoch_ = -1, window_ = 0;
  std::shared_ptr<const EpochPlan> plan_;
};

}  // namespace

EpochPlans EpochPlans::of_planner(const std::shared_ptr<const LengthPlanner>& planner) {
  EpochPlans plans;
  const auto last = std::make_shared<LastPlan>();
  plans.windows = [planner](int64_t epoch) {
    return planner->windows(planner->mixture.epoch(epoch));
  };
  plans.batches = [planner, last](int64_t epoch, int64_t window) {
    const auto plan = last->of(epoch, window);
    return plan ? plan->batches() : planner->batches(epoch, window);
  };
  plans.plan = [planner, last](int64_t epoch, int64_t window) {
    if (const auto made = last->of(epoch, window)) return *made;
    EpochPlan plan;
    std::vector<RowLength> lengths;
    plan.ranges_ = planner->cut<EpochPlan::Range>(
        epoch, window, [](const LengthPlanner::Row& row) { return row.row; },
        [&](int64_t row, const RowLength& length) {
          plan.order_.push_back(row);
          lengths.push_back(length);
        });
    for (const EpochPlan::Range& range : plan.ranges_) {
      plan.padding_.add(std::span(lengths).subspan(static_cast<size_t>(range.begin),
                                                   static_cast<size_t>(range.end - range.begin)));
    }
    last->keep(epoch, window, plan);
    return plan;
  };
  plans.without_taken = [planner](const DataPosition& start) {
    return of_planner(std::make_shared<const LengthPlanner>(planner->without_taken(start)));
  };
  return plans;
}

}  // namespace tapestry
