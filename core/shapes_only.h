// A dry run: what tensors a computation makes, without their memory and without computing.
#pragma once

#include <cstdint>

#include "core/memory_pool.h"

namespace tapestry {

/// While one is alive, this thread's tensors and scratch memory have sizes but next to no memory,
/// parallel_for() calls nothing, a GPU gets no work, and drawing and filling are left out. So a
/// forward and a backward pass cost little, and take what they would take. The host's small tensors
/// (ids, lengths) are real; what is read back of a GPU is 0. Everything made meanwhile must be
/// destroyed before it. Not nested.
class ShapesOnly {
 public:
  /// Throws Error(kOutOfMemory) where the process has no address space left at all.
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  /// Whether one is alive on this thread.
  static bool is_on();
  /// Whether what is written to a block of this size can be read again: of small ones always.
  static bool has_memory(int64_t bytes);

  /// Bytes in use now, of the host and a GPU.
  int64_t bytes_in_use() const;
  /// The most that would ever have been resident on the host: blocks that are free stay with the
  /// allocator, and of a block what was asked for is touched.
  int64_t resident_bytes() const;
  /// What the GPU's allocator would tell. Its free blocks go back to the GPU where others need
  /// them, so that only peak_bytes must fit.
  MemoryStats device_memory() const;
};

namespace internal {
// For host_allocate() and host_free(). The latter is false for memory that is not of a dry run.
void* allocate_shape(int64_t bytes);
bool free_shape(void* block, int64_t bytes) noexcept;
// The same for the memory of a GPU.
void* allocate_device_shape(int64_t bytes);
bool free_device_shape(void* block, int64_t bytes) noexcept;
}  // namespace internal

}  // namespace tapestry
