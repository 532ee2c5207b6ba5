#include "core/memory_pool.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/base/error.h"

namespace tapestry {
namespace {

constexpr int64_t kSmallest = 64;

// Size classes: four per power of two, so at most a quarter of a block is slack.
struct SizeClass {
  int index;
  int64_t bytes;
};

SizeClass size_class(int64_t bytes) {
  if (bytes <= 4 * kSmallest) {
    const int64_t lines = std::max<int64_t>(1, (bytes + kSmallest - 1) / kSmallest);
    return {static_cast<int>(lines - 1), lines * kSmallest};
  }
  // 2^power < bytes <= 2^(power + 1), cut into quarters.
  const int power = std::bit_width(static_cast<uint64_t>(bytes - 1)) - 1;
  const int64_t quarter = int64_t{1} << (power - 2);
  const int64_t steps = (bytes - (int64_t{1} << power) + quarter - 1) / quarter;
  return {4 * (power - 7) + static_cast<int>(steps) - 1, (int64_t{1} << power) + steps * quarter};
}

int64_t bytes_of_class(int index) {
  if (index < 4) return (index + 1) * kSmallest;
  const int power = index / 4 + 7;
  return (int64_t{1} << power) + (index % 4 + 1) * (int64_t{1} << (power - 2));
}

}  // namespace

void* MemoryPool::allocate(int64_t bytes) {
  check(bytes >= 0, "allocator", "cannot allocate ", bytes, " bytes.");
  if (bytes >= int64_t{1} << 48) {
    fail(ErrorKind::kOutOfMemory, "[allocator] cannot allocate ", bytes, " bytes.");
  }
  const SizeClass cls = size_class(bytes);
  std::lock_guard lock(mutex_);
  auto& list = free_[cls.index];
  void* block;
  if (!list.empty()) {
    block = list.back();
    list.pop_back();
  } else {
    block = from_system(cls.bytes);
    stats_.bytes_reserved += cls.bytes;
    ++stats_.system_calls;
    ++blocks_[cls.index];
    list.reserve(blocks_[cls.index]);  // so that free() never allocates
  }
  stats_.bytes_in_use += cls.bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes_in_use);
  if (source_.on_allocate != nullptr) source_.on_allocate(block, bytes, cls.bytes);
  return block;
}

void MemoryPool::free(void* block, int64_t bytes) noexcept {
  const SizeClass cls = size_class(bytes);
  std::lock_guard lock(mutex_);
  if (source_.on_free != nullptr) source_.on_free(block, cls.bytes);
  free_[cls.index].push_back(block);
  stats_.bytes_in_use -= cls.bytes;
}

void MemoryPool::sort() {
  std::lock_guard lock(mutex_);
  for (auto& list : free_) std::sort(list.begin(), list.end(), std::greater<>());
}

MemoryStats MemoryPool::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void MemoryPool::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.bytes_in_use;
}

void MemoryPool::release() {
  std::lock_guard lock(mutex_);
  release_locked();
}

void* MemoryPool::from_system(int64_t block_bytes) {
  void* block = source_.take(block_bytes);
  if (block == nullptr) {  // free blocks of other size classes may hold the memory
    release_locked();
    block = source_.take(block_bytes);
  }
  if (block == nullptr) {
    fail(ErrorKind::kOutOfMemory, "[allocator] the ", source_.name, " has no ", block_bytes,
         " bytes left; ", stats_.bytes_in_use, " bytes are in use.");
  }
  return block;
}

void MemoryPool::release_locked() {
  for (int i = 0; i < kClasses; ++i) {
    for (void* block : free_[i]) {
      source_.give_back(block, bytes_of_class(i));
      stats_.bytes_reserved -= bytes_of_class(i);
      --blocks_[i];
    }
    free_[i].clear();
  }
}

}  // namespace tapestry
