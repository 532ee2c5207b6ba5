// The bookkeeping of one growing range of memory, from which blocks of any size are cut.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tapestry {

/// The host's allocator serves larger blocks from a RangeHeap and others from a MemoryPool. If a
/// limit of the process's addresses (ulimit -v) leaves no room for a range, the pool serves all.
inline constexpr int64_t kMostPooledBytes = 32768;
bool host_has_heap();

/// Manages offsets only; the owner provides the memory, or has none, if it only plans a training. A
/// block comes from the best fitting free range, the lowest of equal ones, else from the end. Free
/// neighbours are merged, so that batches of other shapes can cut the same memory differently. Not
/// thread-safe.
class RangeHeap {
 public:
  /// Blocks are multiples of it, and so are their offsets.
  static constexpr int64_t kGrain = 64;

  /// `limit`: the end of the range.
  explicit RangeHeap(int64_t limit) : limit_(limit) {}

  /// The offset of a block of `bytes` >= 1; -1 if there is no room. A block may end beyond top(),
  /// which then grows.
  int64_t take(int64_t bytes);
  /// Frees a block of take(bytes).
  void give(int64_t offset, int64_t bytes);

  /// What top() would be after take(), without taking.
  int64_t top_after(int64_t bytes) const;
  /// The end of the highest block that ever was.
  int64_t top() const { return top_; }
  /// Free ranges below top(), begin -> end, ascending.
  const std::map<int64_t, int64_t>& free_ranges() const { return free_; }

 private:
  using Sized = std::pair<int64_t, int64_t>;  // bytes, begin

  void add(int64_t begin, int64_t end);
  void remove(std::map<int64_t, int64_t>::iterator range);
  /// Free bytes at the very end.
  int64_t free_at_top() const;

  int64_t limit_, top_ = 0;
  std::map<int64_t, int64_t> free_;
  std::set<Sized> by_size_;
};

}  // namespace tapestry
