// The bookkeeping of one growing range of memory, from which blocks of any size are cut.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace tapestry {

/// The host's allocator serves larger blocks from a RangeHeap, others from a MemoryPool; all from
/// the pool where a limit of the process's addresses (ulimit -v) leaves no room for a range.
inline constexpr int64_t kMostPooledBytes = 32768;
bool host_has_heap();

/// Offsets only: who uses it has the memory, or, to know what a training will take, none. A block
/// comes from the free range that it fits best, the lowest of those, else from the end. Free
/// neighbours become one range: batches of other shapes cut the same memory otherwise. Not
/// thread-safe.
class RangeHeap {
 public:
  /// Blocks are multiples of it, and so are their offsets.
  static constexpr int64_t kGrain = 64;

  /// `limit`: where the range ends.
  explicit RangeHeap(int64_t limit) : limit_(limit) {}

  /// The offset of a block of `bytes` >= 1; -1 where there is no room. It may lie behind top(),
  /// which then grows.
  int64_t take(int64_t bytes);
  /// Frees a block of take(bytes).
  void give(int64_t offset, int64_t bytes);

  /// Where take() would have to go to, without taking it.
  int64_t top_after(int64_t bytes) const;
  /// The end of the highest block that ever was.
  int64_t top() const { return top_; }
  /// begin -> end, ascending; those below top().
  const std::map<int64_t, int64_t>& free_ranges() const { return free_; }

 private:
  using Sized = std::pair<int64_t, int64_t>;  // bytes, begin

  void add(int64_t begin, int64_t end);
  void remove(std::map<int64_t, int64_t>::iterator range);
  /// Of the bytes that lie free at the very end.
  int64_t free_at_top() const;

  int64_t limit_, top_ = 0;
  std::map<int64_t, int64_t> free_;
  std::set<Sized> by_size_;
};

}  // namespace tapestry
