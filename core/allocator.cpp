#include "core/allocator.h"

#include <sys/mman.h>

#include <cstdlib>

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

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;

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

// For AddressSanitizer, free blocks and the slack of a size class are out of bounds.
void poison_slack(void* block, [[maybe_unused]] int64_t bytes,
                  [[maybe_unused]] int64_t block_bytes) {
  ASAN_POISON_MEMORY_REGION(block, block_bytes);
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
}

void poison(void* block, [[maybe_unused]] int64_t block_bytes) {
  ASAN_POISON_MEMORY_REGION(block, block_bytes);
}

// Never destroyed: tensors in static storage may outlive any static pool.
MemoryPool& pool() {
  static auto* instance = new MemoryPool({"system", take, give_back, poison_slack, poison});
  return *instance;
}

}  // namespace

void* host_allocate(int64_t bytes) {
  return ShapesOnly::is_on() ? internal::allocate_shape(bytes) : pool().allocate(bytes);
}
void host_free(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr || internal::free_shape(pointer, bytes)) return;
  pool().free(pointer, bytes);
}
MemoryStats host_memory() { return pool().stats(); }
MemoryStats memory_of(Device device) { return device.is_cpu() ? host_memory() : cuda::memory(); }
void reset_peak_bytes() {
  pool().reset_peak();
  cuda::reset_peak_bytes();
}
void release_free_memory() { pool().release(); }

}  // namespace tapestry
