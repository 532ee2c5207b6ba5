#include "core/shapes_only.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/range_heap.h"
#include "core/memory_pool.h"

namespace tapestry {
namespace {

constexpr int64_t kLeastMapped = int64_t{1} << 16;
// Larger blocks share one range of addresses; what the host writes to them is lost.
constexpr int64_t kLargestRealBlock = int64_t{1} << 20;

/// The addresses of large blocks. Each block has an address of its own; the bytes behind it overlap
/// with other blocks.
class SharedRange {
 public:
  SharedRange() {
    constexpr int64_t kLargest = int64_t{1} << 40;  // a limit of the process may leave less
    for (bytes_ = kLargest; bytes_ >= kLargestRealBlock; bytes_ /= 2) {
      void* const start = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (start == MAP_FAILED) continue;
      start_ = static_cast<char*>(start);
      if (bytes_ < kLargest) {  // the small blocks need a part of the limit
        bytes_ /= 2;
        munmap(start_ + bytes_, static_cast<size_t>(bytes_));
      }
      return;
    }
    fail(ErrorKind::kOutOfMemory, "[plan] the limit of this process (ulimit -v) leaves no MB.");
  }
  ~SharedRange() { munmap(start_, static_cast<size_t>(bytes_)); }
  SharedRange(const SharedRange&) = delete;
  SharedRange& operator=(const SharedRange&) = delete;

  void* next() { return start_ + kAlignment * blocks_++; }

 private:
  char* start_ = nullptr;
  int64_t bytes_ = 0, blocks_ = 0;
};

struct DryRun {
  DryRun(const MemoryPool::Source& host, const MemoryPool::Source& gpu)
      : pool(host), device_pool(gpu) {}

  SharedRange range;
  MemoryPool pool;  // gives addresses; of the same size classes as the real one
  std::unordered_map<void*, int64_t> touched;           // the most that was asked of each block
  RangeHeap heap{std::numeric_limits<int64_t>::max()};  // as the real one
  std::unordered_map<void*, int64_t> offsets;           // of blocks that would be its
  int64_t in_use = 0;
  MemoryPool device_pool;  // as the real one
  std::unordered_set<void*> device_blocks;
};

bool is_of_heap(int64_t bytes) { return bytes > kMostPooledBytes && host_has_heap(); }

thread_local DryRun* dry_run = nullptr;

// Zeros, which are valid ids and lengths. The system maps memory only for touched pages.
void* take_block(int64_t block_bytes) {
  const auto bytes = static_cast<size_t>(block_bytes);
  if (block_bytes > kLargestRealBlock) return dry_run->range.next();
  if (block_bytes >= kLeastMapped) {
    void* const block =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
  }
  void* block = nullptr;
  if (posix_memalign(&block, kAlignment, bytes) != 0) return nullptr;
  return std::memset(block, 0, bytes);
}

void give_block_back(void* block, int64_t block_bytes) {
  if (block_bytes > kLargestRealBlock) return;
  if (block_bytes < kLeastMapped) return std::free(block);
  munmap(block, static_cast<size_t>(block_bytes));
}

void note(void* block, int64_t bytes, int64_t block_bytes) {
  int64_t& most = dry_run->touched[block];
  most = std::max(most, bytes);
  if (is_of_heap(bytes)) {
    dry_run->offsets[block] = dry_run->heap.take(bytes);
    dry_run->in_use += rounded_up(bytes, RangeHeap::kGrain);
  } else {
    dry_run->in_use += block_bytes;
  }
}

void forget(void* block, int64_t block_bytes) {
  if (dry_run->offsets.contains(block)) return;  // free_shape() knows the size of the block
  dry_run->in_use -= block_bytes;
}

void* take_on_device(int64_t) {
  void* const block = dry_run->range.next();
  dry_run->device_blocks.insert(block);
  return block;
}

}  // namespace

ShapesOnly::ShapesOnly() {
  check(dry_run == nullptr, "plan", "a dry run cannot stand in another.");
  dry_run = new DryRun({"dry run", take_block, give_block_back, note, forget},
                       {"dry run", take_on_device, [](void*, int64_t) {}, nullptr, nullptr});
}

ShapesOnly::~ShapesOnly() {
  dry_run->pool.release();
  delete dry_run;
  dry_run = nullptr;
}

bool ShapesOnly::is_on() { return dry_run != nullptr; }
bool ShapesOnly::has_memory(int64_t bytes) { return !is_on() || bytes <= kLargestRealBlock; }

int64_t ShapesOnly::bytes_in_use() const { return dry_run->in_use + device_memory().bytes_in_use; }
MemoryStats ShapesOnly::device_memory() const { return dry_run->device_pool.stats(); }

int64_t ShapesOnly::resident_bytes() const {
  int64_t total = rounded_up(dry_run->heap.top(), kHugePage);
  for (const auto& [block, bytes] : dry_run->touched) {
    if (is_of_heap(bytes)) continue;
    total += bytes < kPage ? bytes : rounded_up(bytes, kPage);
  }
  return total;
}

void* internal::allocate_shape(int64_t bytes) { return dry_run->pool.allocate(bytes); }

bool internal::free_shape(void* block, int64_t bytes) noexcept {
  if (dry_run == nullptr || !dry_run->touched.contains(block)) return false;
  if (const auto found = dry_run->offsets.find(block); found != dry_run->offsets.end()) {
    dry_run->heap.give(found->second, bytes);
    dry_run->in_use -= rounded_up(bytes, RangeHeap::kGrain);
    dry_run->pool.free(block, bytes);
    dry_run->offsets.erase(block);
    return true;
  }
  dry_run->pool.free(block, bytes);
  return true;
}

void* internal::allocate_device_shape(int64_t bytes) {
  return dry_run->device_pool.allocate(bytes);
}

bool internal::free_device_shape(void* block, int64_t bytes) noexcept {
  if (dry_run == nullptr || !dry_run->device_blocks.contains(block)) return false;
  dry_run->device_pool.free(block, bytes);
  return true;
}

}  // namespace tapestry
