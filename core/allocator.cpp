#include "core/allocator.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "core/base/error.h"
#include "core/base/range_heap.h"
#include "core/cuda/runtime.h"
#include "core/shapes_only.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(pointer, bytes) ((void)(pointer), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(pointer, bytes) ((void)(pointer), (void)(bytes))
#endif

namespace tapestry {
namespace {

// Bytes of heap and pool together.
std::atomic<int64_t> in_use = 0, peak = 0;

void count(int64_t bytes) {
  const int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

void* take(int64_t block_bytes) {
  const int64_t alignment = block_bytes >= kHugePage ? kHugePage : kAlignment;
  void* block = nullptr;
  if (posix_memalign(&block, alignment, block_bytes) != 0) return nullptr;
  if (block_bytes >= kHugePage) madvise(block, block_bytes, MADV_HUGEPAGE);
  return block;
}

void give_back(void* block, [[maybe_unused]] int64_t block_bytes) {
  ASAN_UNPOISON_MEMORY_REGION(block, block_bytes);
  std::free(block);
}

// AddressSanitizer gets free blocks and the slack of a size class as out of bounds.
void poison_slack(void* block, [[maybe_unused]] int64_t bytes, int64_t block_bytes) {
  ASAN_POISON_MEMORY_REGION(block, block_bytes);
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  count(block_bytes);
}

void poison(void* block, int64_t block_bytes) {
  ASAN_POISON_MEMORY_REGION(block, block_bytes);
  count(-block_bytes);
}

// Never destroyed: tensors in static storage may outlive any static pool.
MemoryPool& pool() {
  static auto* instance = new MemoryPool({"system", take, give_back, poison_slack, poison});
  return *instance;
}

/// Serves large blocks from one range of addresses, which becomes memory from its beginning as far
/// as it is needed. So a batch of another shape reuses the memory of the batch before it.
class Heap {
 public:
  Heap() {
    constexpr int64_t kLeast = int64_t{1} << 30;
    for (int64_t bytes = is_limited() ? 0 : 2 * memory_of_machine(); bytes >= kLeast; bytes /= 2) {
      void* const start = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (start == MAP_FAILED) continue;
      const auto address = reinterpret_cast<uintptr_t>(start);
      const int64_t skipped =
          rounded_up(static_cast<int64_t>(address), kHugePage) - static_cast<int64_t>(address);
      start_ = static_cast<char*>(start) + skipped;
      bytes_ = bytes - kHugePage;
      ranges_ = RangeHeap(bytes_);
      madvise(start_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
      return;
    }
  }

  /// Else the pool serves all sizes.
  bool exists() const { return start_ != nullptr; }
  bool holds(const void* block) const {
    const auto* const address = static_cast<const char*>(block);
    return address >= start_ && address < start_ + bytes_;
  }

  /// Returns null if the system has no more memory.
  void* allocate(int64_t bytes) {
    char* block;
    {
      std::lock_guard lock(mutex_);
      const int64_t top = ranges_.top_after(bytes);
      if (top > bytes_ || !has_memory_up_to(top)) return nullptr;
      block = start_ + ranges_.take(bytes);
      given_back_ = std::max<int64_t>(0, given_back_ - bytes);
    }
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
    count(rounded_up(bytes, RangeHeap::kGrain));
    return block;
  }

  void free(void* block, int64_t bytes) {
    count(-rounded_up(bytes, RangeHeap::kGrain));
    ASAN_POISON_MEMORY_REGION(block, rounded_up(bytes, RangeHeap::kGrain));
    std::lock_guard lock(mutex_);
    ranges_.give(static_cast<char*>(block) - start_, bytes);
  }

  void release() {
    std::lock_guard lock(mutex_);
    given_back_ = 0;
    for (const auto& [begin, end] : ranges_.free_ranges()) {
      given_back_ += end - begin;
      const int64_t first = rounded_up(begin, kPage), last = end / kPage * kPage;
      if (first < last) madvise(start_ + first, static_cast<size_t>(last - first), MADV_DONTNEED);
    }
  }

  /// Adds the bytes taken from the system, and how often it was asked.
  void add_to(MemoryStats& stats) {
    std::lock_guard lock(mutex_);
    stats.bytes_reserved += ranges_.top() - given_back_;
    stats.system_calls += growths_;
  }

 private:
  static int64_t memory_of_machine() { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

  // A limit of addresses leaves no room for a range of them.
  static bool is_limited() {
    rlimit limit{};
    return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
  }

  bool has_memory_up_to(int64_t top) {
    if (top <= memory_) return true;
    const int64_t bytes = std::min(rounded_up(top, kHugePage), bytes_) - memory_;
    if (mprotect(start_ + memory_, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) != 0) {
      return false;
    }
    ASAN_POISON_MEMORY_REGION(start_ + memory_, bytes);
    memory_ += bytes;
    ++growths_;
    return true;
  }

  char* start_ = nullptr;
  int64_t bytes_ = 0;   // of addresses
  int64_t memory_ = 0;  // of the bytes that can be written
  int64_t growths_ = 0, given_back_ = 0;
  RangeHeap ranges_{0};
  std::mutex mutex_;
};

Heap& heap() {
  static auto* instance = new Heap;
  return *instance;
}

void* allocate_large(int64_t bytes) {
  void* block = heap().allocate(bytes);
  if (block == nullptr) {  // the pool may hold the missing memory as free blocks
    pool().release();
    heap().release();
    block = heap().allocate(bytes);
  }
  if (block == nullptr) {
    fail(ErrorKind::kOutOfMemory, "[allocator] the system has no ", bytes, " bytes left; ",
         in_use.load(), " bytes are in use.");
  }
  return block;
}

}  // namespace

bool host_has_heap() { return heap().exists(); }

void* host_allocate(int64_t bytes) {
  if (ShapesOnly::is_on()) return internal::allocate_shape(bytes);
  return bytes > kMostPooledBytes && host_has_heap() ? allocate_large(bytes)
                                                     : pool().allocate(bytes);
}
void host_free(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr || internal::free_shape(pointer, bytes)) return;
  heap().holds(pointer) ? heap().free(pointer, bytes) : pool().free(pointer, bytes);
}
MemoryStats host_memory() {
  MemoryStats stats = pool().stats();
  stats.bytes_in_use = in_use;
  stats.peak_bytes = peak;
  heap().add_to(stats);
  return stats;
}
MemoryStats memory_of(Device device) { return device.is_cpu() ? host_memory() : cuda::memory(); }
void reset_peak_bytes() {
  peak = in_use.load();
  cuda::reset_peak_bytes();
}
void release_free_memory() {
  pool().release();
  heap().release();
  malloc_trim(0);
}

}  // namespace tapestry
