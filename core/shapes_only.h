// A dry run: computes the sizes of tensors without their memory and without arithmetic.
#pragma once

#include <cstdint>

#include "core/memory_pool.h"

namespace tapestry {

/// While one is alive, this thread's tensors and scratch memory have sizes but next to no memory,
/// parallel_for() calls nothing, a GPU gets no work, and drawing and filling are left out. So a
/// forward and a backward pass cost little and report the memory that they would take. The host's
/// small tensors (ids, lengths) are real; reads from a GPU give 0. Destroy everything made
/// meanwhile before it. Cannot be nested.
class ShapesOnly {
 public:
  /// Throws Error(kOutOfMemory) if the process has no address space left.
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  /// True if one is alive on this thread.
  static bool is_on();
  /// True if data written to a block of this size can be read again; small blocks always can.
  static bool has_memory(int64_t bytes);

  /// Bytes in use now, of the host and a GPU.
  int64_t bytes_in_use() const;
  /// The most bytes that would have been resident on the host: free blocks stay with the allocator,
  /// and of a block only the requested bytes are touched.
  int64_t resident_bytes() const;
  /// The GPU allocator's figures. Its free blocks go back to the GPU when others need them, so that
  /// only peak_bytes must fit.
  MemoryStats device_memory() const;
};

namespace internal {
// Used by host_allocate() and host_free(). free_shape() returns false for memory that is not of a
// dry run.
void* allocate_shape(int64_t bytes);
bool free_shape(void* block, int64_t bytes) noexcept;
// The same for a GPU's memory.
void* allocate_device_shape(int64_t bytes);
bool free_device_shape(void* block, int64_t bytes) noexcept;
}  // namespace internal

}  // namespace tapestry
