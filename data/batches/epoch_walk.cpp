// A walk through epochs, batch by batch.
#include <algorithm>

#include "data/batches/batching.h"

namespace tapestry {

void fail_position(int64_t epoch, int64_t batches, int64_t saved) {
  fail(ErrorKind::kData, "[data] epoch ", epoch, " has ", batches,
       " batches, the saved position is batch ", saved, ": the data or batch_size changed.");
}

std::span<const int64_t> EpochPlan::batch(int64_t i) const {
  check(i >= 0 && i < batches(), "data", "batch must be in [0, ", batches(), "), got ", i, '.');
  const Range range = ranges_[static_cast<size_t>(i)];
  return {order_.data() + range.begin, static_cast<size_t>(range.end - range.begin)};
}

EpochWalk::EpochWalk(EpochPlans plans, const DataPosition& start)
    : plans_(std::move(plans)), position_{start.epoch, 0} {
  const bool possible = start.epoch >= 0 && start.batch >= 0;
  if (possible && !start.before.empty()) plans_ = plans_.without_taken(start);
  int64_t windows = possible ? plans_.windows(start.epoch) : 0;
  // The plan of the first window is made at once, so that its errors come here.
  if (windows == 1) plan_ = plans_.plan(start.epoch, 0);
  for (; window_ < windows; ++window_) {
    count_ = plan_ ? plan_->batches() : plans_.batches(start.epoch, window_);
    if (start.batch <= first_ + count_) break;
    first_ += count_;
  }
  if (!possible || window_ == windows) fail_position(start.epoch, first_, start.batch);
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
  do {  // of a window nothing may be left
    if (at_window_end()) enter_next_window();
    if (!plan_) {
      plan_ = plans_.plan(position_.epoch, window_);
      count_ = plan_->batches();
    }
  } while (at_window_end());
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

std::string EpochWalk::summary() {
  if (!plan_ && !at_window_end()) plan_ = plans_.plan(position_.epoch, window_);
  if (!plan_ || plan_->padding().batches == 0) return "";
  const int64_t windows = plans_.windows(position_.epoch);
  return concat(windows > 1 ? concat("of a window (1/", windows, " of the data): ") : "",
                plan_->padding().summary());
}

int64_t EpochWalk::batches_in_epoch() const {
  int64_t batches = first_ + count_;
  for (int64_t window = window_ + 1; window < plans_.windows(position_.epoch); ++window) {
    batches += plans_.batches(position_.epoch, window);
  }
  return batches;
}

}  // namespace tapestry
