#include <algorithm>
#include <numeric>

#include "core/base/draws.h"
#include "data/batches/batching.h"
#include "data/batches/epoch_window.h"
#include "data/corpora/permutation.h"

namespace tapestry {

// For rows of one length: the rows already taken are the beginning of an epoch's order.
struct EqualPlanner {
  EqualRows given;
  int64_t taken_epoch = -1;
  int64_t taken = 0;

  // Windows end where batches end.
  struct Cut {
    int64_t first, rows, windows, batches;
  };
  Cut cut(int64_t epoch) const {
    const int64_t all = given.rows(epoch), first = epoch == taken_epoch ? taken : 0;
    return {first, all, windows_of_rows(all, given.window_rows),
            (all - first + given.batch_size - 1) / given.batch_size};
  }
  EpochWindow batches(int64_t epoch, int64_t window) const {
    const Cut whole = cut(epoch);
    return epoch_window(whole.batches, whole.windows, window);
  }

  EqualPlanner without_taken(const DataPosition& start) const {
    EqualPlanner then = *this;
    then.taken_epoch = start.epoch;
    const int64_t all = given.rows(start.epoch);
    for (const TakenBatches& part : start.before) {
      const int64_t size = part.batch_type == "tokens"
                               ? std::max<int64_t>(1, part.batch_size / given.row_tokens)
                               : part.batch_size;
      const int64_t most = (all - then.taken + size - 1) / size;
      if (part.batches > most) fail_position(start.epoch, most, part.batches);
      then.taken = std::min(all, then.taken + part.batches * size);
    }
    return then;
  }
};

EpochPlans EpochPlans::of_equal_rows(const EqualRows& given) {
  if (given.batch_size < 1) {
    fail(ErrorKind::kConfig, "[data] batch_size must be at least 1, got ", given.batch_size, '.');
  }
  return of_planner(EqualPlanner{.given = given});
}

EpochPlans EpochPlans::of_planner(const EqualPlanner& planner) {
  EpochPlans plans;
  plans.windows = [planner](int64_t epoch) { return planner.cut(epoch).windows; };
  plans.batches = [planner](int64_t epoch, int64_t window) {
    const EpochWindow batches = planner.batches(epoch, window);
    return batches.end - batches.begin;
  };
  plans.plan = [planner](int64_t epoch, int64_t window) {
    const EqualRows& given = planner.given;
    const EqualPlanner::Cut cut = planner.cut(epoch);
    const EpochWindow batches = planner.batches(epoch, window);
    const int64_t begin = cut.first + batches.begin * given.batch_size;
    const int64_t end = std::min(cut.first + batches.end * given.batch_size, cut.rows);
    EpochPlan plan;
    const PhiloxKey key = draw_key(given.seed, epoch, "data.rows");
    if (given.shuffle && cut.windows == 1) {
      std::vector<int64_t> all(static_cast<size_t>(cut.rows));
      std::iota(all.begin(), all.end(), int64_t{0});
      shuffle(all, key);
      plan.order_.assign(all.begin() + begin, all.begin() + end);
    } else {
      plan.order_.resize(static_cast<size_t>(end - begin));
      std::iota(plan.order_.begin(), plan.order_.end(), begin);
    }
    if (given.shuffle && cut.windows > 1) {
      const Permutation order(cut.rows, key);
      for (int64_t& row : plan.order_) row = order(row);
    }
    for (int64_t at = 0; at < end - begin; at += given.batch_size) {
      plan.ranges_.push_back({at, std::min(at + given.batch_size, end - begin)});
    }
    return plan;
  };
  plans.without_taken = [planner](const DataPosition& start) {
    return of_planner(planner.without_taken(start));
  };
  return plans;
}

}  // namespace tapestry
