// Caching allocator over any source of memory: blocks are kept in free lists by size class, so that
// a training step that has run once never asks the system again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tapestry {

struct MemoryStats {
  int64_t bytes_in_use = 0;    ///< handed out now, rounded up to size classes
  int64_t peak_bytes = 0;      ///< most of bytes_in_use since reset_peak()
  int64_t bytes_reserved = 0;  ///< taken from the system: in use and in free lists
  int64_t system_calls = 0;    ///< how often a block had to be taken from the system
};

class MemoryPool {
 public:
  /// Where blocks come from. `take` returns null when nothing is left. The hooks learn of every
  /// block that is handed out or given back; `block_bytes` >= `bytes` is its size class. They may
  /// be null.
  struct Source {
    const char* name;
    void* (*take)(int64_t block_bytes);
    void (*give_back)(void* block, int64_t block_bytes);
    void (*on_allocate)(void* block, int64_t bytes, int64_t block_bytes);
    void (*on_free)(void* block, int64_t block_bytes);
  };
  explicit MemoryPool(const Source& source) : source_(source) {}

  /// `bytes` >= 0 of uninitialised memory. Thread-safe. Throws Error(kOutOfMemory) with the sizes.
  void* allocate(int64_t bytes);
  /// Gives back what allocate(bytes) returned; `bytes` must be the same. Thread-safe.
  void free(void* block, int64_t bytes) noexcept;

  /// Free blocks are handed out by ascending address from here on, until others are given back: the
  /// same requests get the same blocks if the same ones are in use.
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
