#include "core/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "core/error.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(pointer, bytes) ((void)(pointer), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(pointer, bytes) ((void)(pointer), (void)(bytes))
#endif

namespace tapestry {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;

// Size classes: four per power of two, so at most a quarter of a block is slack.
struct SizeClass {
  int index;
  int64_t bytes;
};

SizeClass size_class(int64_t bytes) {
  if (bytes <= 4 * kAlignment) {
    const int64_t lines = std::max<int64_t>(1, (bytes + kAlignment - 1) / kAlignment);
    return {static_cast<int>(lines - 1), lines * kAlignment};
  }
  // 2^power < bytes <= 2^(power + 1), cut into quarters.
  const int power = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 1;
  const int64_t quarter = int64_t{1} << (power - 2);
  const int64_t steps = (bytes - (int64_t{1} << power) + quarter - 1) / quarter;
  return {4 * (power - 7) + static_cast<int>(steps) - 1, (int64_t{1} << power) + steps * quarter};
}

constexpr int kClasses = 4 * (48 - 7);  // up to 2^48 bytes

class Pool {
 public:
  void* allocate(int64_t bytes) {
    check(bytes >= 0 && bytes < (int64_t{1} << 48), "allocator", "cannot allocate ", bytes,
          " bytes.");
    const SizeClass cls = size_class(bytes);
    std::lock_guard lock(mutex_);
    auto& list = free_[cls.index];
    void* pointer;
    if (!list.empty()) {
      pointer = list.back();
      list.pop_back();
    } else {
      pointer = from_system(cls.bytes);
      stats_.bytes_reserved += cls.bytes;
      ++stats_.system_calls;
      ++blocks_[cls.index];
      list.reserve(blocks_[cls.index]);  // so that free() never allocates
    }
    stats_.bytes_in_use += cls.bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes_in_use);
    // AddressSanitizer sees free blocks and the slack of a size class as out of bounds.
    ASAN_POISON_MEMORY_REGION(pointer, cls.bytes);
    ASAN_UNPOISON_MEMORY_REGION(pointer, bytes);
    return pointer;
  }

  void free(void* pointer, int64_t bytes) noexcept {
    const SizeClass cls = size_class(bytes);
    std::lock_guard lock(mutex_);
    ASAN_POISON_MEMORY_REGION(pointer, cls.bytes);
    free_[cls.index].push_back(pointer);
    stats_.bytes_in_use -= cls.bytes;
  }

  MemoryStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.bytes_in_use;
  }

  void release() {
    std::lock_guard lock(mutex_);
    release_locked();
  }

 private:
  void* from_system(int64_t bytes) {
    void* pointer = try_system(bytes);
    if (pointer == nullptr) {  // another size class may hold the memory
      release_locked();
      pointer = try_system(bytes);
    }
    if (pointer == nullptr) {
      fail(ErrorKind::kOutOfMemory, "[allocator] the system has no ", bytes, " bytes left; ",
           stats_.bytes_in_use, " bytes are in use.");
    }
    return pointer;
  }

  static void* try_system(int64_t bytes) {
    const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    void* pointer = nullptr;
    if (posix_memalign(&pointer, alignment, bytes) != 0) return nullptr;
    if (bytes >= kHugePage) madvise(pointer, bytes, MADV_HUGEPAGE);
    return pointer;
  }

  void release_locked() {
    for (int i = 0; i < kClasses; ++i) {
      const int64_t bytes = bytes_of(i);
      for (void* pointer : free_[i]) {
        ASAN_UNPOISON_MEMORY_REGION(pointer, bytes);
        std::free(pointer);
        stats_.bytes_reserved -= bytes;
        --blocks_[i];
      }
      free_[i].clear();
    }
  }

  static int64_t bytes_of(int index) {
    if (index < 4) return (index + 1) * kAlignment;
    const int power = index / 4 + 7;
    return (int64_t{1} << power) + (index % 4 + 1) * (int64_t{1} << (power - 2));
  }

  std::mutex mutex_;
  std::vector<void*> free_[kClasses];
  size_t blocks_[kClasses] = {};
  MemoryStats stats_;
};

// Never destroyed: tensors in static storage may outlive any static pool.
Pool& pool() {
  static Pool* instance = new Pool;
  return *instance;
}

}  // namespace

void* host_allocate(int64_t bytes) { return pool().allocate(bytes); }
void host_free(void* pointer, int64_t bytes) noexcept {
  if (pointer != nullptr) pool().free(pointer, bytes);
}
MemoryStats host_memory() { return pool().stats(); }
void reset_peak_bytes() { pool().reset_peak(); }
void release_free_memory() { pool().release(); }

}  // namespace tapestry
