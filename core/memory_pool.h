// Caching allocator over any source of memory: blocks are kept in free lists by size class, so that
// a training step that ran once needs no more memory from the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tapestry {

// Sizes of the system and of blocks, in bytes.
inline constexpr int64_t kAlignment = 64, kPage = 4096, kHugePage = int64_t{2} << 20;

/// `bytes` rounded up to a whole number of units.
constexpr int64_t rounded_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct MemoryStats {
  int64_t bytes_in_use = 0;    ///< allocated now, rounded up to size classes
  int64_t peak_bytes = 0;      ///< largest bytes_in_use since reset_peak()
  int64_t bytes_reserved = 0;  ///< taken from the system: in use and in free lists
  int64_t system_calls = 0;    ///< number of blocks taken from the system
};

class MemoryPool {
 public:
  /// The source of blocks. `take` returns null if no memory is left. on_allocate and on_free are
  /// called for every block that is allocated or freed, and may be null. `block_bytes` >= `bytes`
  /// is the size class of the block.
  struct Source {
    const char* name;
    void* (*take)(int64_t block_bytes);
    void (*give_back)(void* block, int64_t block_bytes);
    void (*on_allocate)(void* block, int64_t bytes, int64_t block_bytes);
    void (*on_free)(void* block, int64_t block_bytes);
  };
  explicit MemoryPool(const Source& source) : source_(source) {}

  /// Allocates `bytes` >= 0 uninitialised bytes. Thread-safe. Throws Error(kOutOfMemory) with the
  /// sizes.
  void* allocate(int64_t bytes);
  /// Frees a block of allocate(bytes); `bytes` must be the same. Thread-safe.
  void free(void* block, int64_t bytes) noexcept;

  /// Sorts the free blocks: they are allocated by ascending address until other blocks are freed.
  /// So the same requests get the same blocks if the same blocks are in use.
  void sort();

  MemoryStats stats();
  void reset_peak();
  /// Returns every free block to the system.
  void release();

 private:
  static constexpr int kClasses = 4 * (48 - 7);  // up to 2^48 bytes

  void* from_system(int64_t block_bytes);
  void release_locked();

  const Source source_;
  std::mutex mutex_;
  std::vector<void*> free_[kClasses];
  size_t blocks_[kClasses] = {};
  MemoryStats stats_;
};

}  // namespace tapestry
