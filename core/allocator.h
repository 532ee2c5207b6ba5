// The host allocator: a MemoryPool of 64-byte aligned blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "core/memory_pool.h"

namespace tapestry {

/// `bytes` >= 0 of uninitialised memory, aligned to 64 bytes. Thread-safe.
/// Throws Error(kOutOfMemory) with the sizes.
void* host_allocate(int64_t bytes);

/// Gives back what host_allocate(bytes) returned; `bytes` must be the same. Thread-safe.
void host_free(void* pointer, int64_t bytes) noexcept;

MemoryStats host_memory();
/// Of the memory that tensors on `device` live in.
MemoryStats memory_of(Device device);
/// On every device.
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
  T* allocate(size_t n) {
    return static_cast<T*>(host_allocate(static_cast<int64_t>(n * sizeof(T))));
  }
  void deallocate(T* pointer, size_t n) noexcept {
    host_free(pointer, static_cast<int64_t>(n * sizeof(T)));
  }
  template <class U>
  bool operator==(const HostAllocator<U>&) const {
    return true;
  }
};

}  // namespace tapestry
