// The host allocator: a MemoryPool of 64-byte aligned blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "core/memory_pool.h"

namespace tapestry {

/// Allocates `bytes` >= 0 uninitialised bytes, aligned to 64 bytes. Thread-safe.
/// Throws Error(kOutOfMemory) with the sizes.
void* host_allocate(int64_t bytes);

/// Frees a block of host_allocate(bytes); `bytes` must be the same. Thread-safe.
void host_free(void* pointer, int64_t bytes) noexcept;

MemoryStats host_memory();
/// Statistics of the memory that holds the tensors of `device`.
MemoryStats memory_of(Device device);
/// Resets peak_bytes of every device.
void reset_peak_bytes();

/// Returns every free block to the system.
void release_free_memory();

/// host_allocate as a standard allocator, for small objects with shared ownership.
template <class T>
struct HostAllocator {
  using value_type = T;
  HostAllocator() = default;
  template <class U>
  HostAllocator(const HostAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(host_allocate(bytes_of(n))); }
  void deallocate(T* pointer, size_t n) noexcept { host_free(pointer, bytes_of(n)); }
  template <class U>
  bool operator==(const HostAllocator<U>&) const {
    return true;
  }

 private:
  static int64_t bytes_of(size_t n) {
    return static_cast<int64_t>(
        n * sizeof(T));  // NOLINT(bugprone-sizeof-expression): any T, pointers too
  }
};

}  // namespace tapestry
