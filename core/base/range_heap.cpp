#include "core/base/range_heap.h"

namespace tapestry {
namespace {

int64_t rounded(int64_t bytes) {
  return (bytes + RangeHeap::kGrain - 1) / RangeHeap::kGrain * RangeHeap::kGrain;
}

}  // namespace

int64_t RangeHeap::free_at_top() const {
  if (free_.empty() || free_.rbegin()->second != top_) return 0;
  return top_ - free_.rbegin()->first;
}

int64_t RangeHeap::top_after(int64_t bytes) const {
  bytes = rounded(bytes);
  if (by_size_.lower_bound({bytes, 0}) != by_size_.end()) return top_;
  return top_ - free_at_top() + bytes;
}

int64_t RangeHeap::take(int64_t bytes) {
  bytes = rounded(bytes);
  const auto fits = by_size_.lower_bound({bytes, 0});
  if (fits == by_size_.end()) {
    const int64_t begin = top_ - free_at_top();
    if (bytes > limit_ - begin) return -1;
    if (begin < top_) remove(free_.find(begin));
    top_ = begin + bytes;
    return begin;
  }
  const int64_t begin = fits->second, end = begin + fits->first;
  remove(free_.find(begin));
  if (begin + bytes < end) add(begin + bytes, end);
  return begin;
}

void RangeHeap::give(int64_t offset, int64_t bytes) {
  int64_t begin = offset, end = offset + rounded(bytes);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    remove(next++);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->second == begin) {
      begin = before->first;
      remove(before);
    }
  }
  add(begin, end);
}

void RangeHeap::add(int64_t begin, int64_t end) {
  free_.emplace(begin, end);
  by_size_.emplace(end - begin, begin);
}

void RangeHeap::remove(std::map<int64_t, int64_t>::iterator range) {
  by_size_.erase({range->second - range->first, range->first});
  free_.erase(range);
}

}  // namespace tapestry
