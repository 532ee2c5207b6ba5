#include "core/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace tapestry {
namespace {

TEST(AllocatorTest, BlocksAreAlignedWritableAndDistinct) {
  std::vector<std::pair<char*, int64_t>> blocks;
  for (const int64_t bytes : {0, 1, 63, 64, 65, 255, 257, 1000, 4096, 100001, 3 << 20}) {
    char* const pointer = static_cast<char*>(host_allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 64, 0u) << bytes;
    std::memset(pointer, static_cast<int>(blocks.size()), static_cast<size_t>(bytes));
    blocks.emplace_back(pointer, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (int64_t j = 0; j < blocks[i].second; ++j) {
      ASSERT_EQ(blocks[i].first[j], static_cast<char>(i)) << "block " << i << " was overwritten";
    }
    host_free(blocks[i].first, blocks[i].second);
  }
}

TEST(AllocatorTest, CountsBytesInUseAndTheirPeak) {
  const int64_t before = host_memory().bytes_in_use;
  reset_peak_bytes();
  EXPECT_EQ(host_memory().peak_bytes, before);
  void* const a = host_allocate(100000);
  const int64_t with_a = host_memory().bytes_in_use;
  EXPECT_GE(with_a - before, 100000);
  EXPECT_LE(with_a - before, 125000);  // at most a quarter of slack
  void* const b = host_allocate(1 << 20);
  host_free(b, 1 << 20);
  EXPECT_EQ(host_memory().bytes_in_use, with_a);
  EXPECT_GE(host_memory().peak_bytes, with_a + (1 << 20));
  host_free(a, 100000);
  EXPECT_EQ(host_memory().bytes_in_use, before);
}

TEST(AllocatorTest, AFreedBlockServesTheNextRequestOfItsSize) {
  void* const first = host_allocate(70000);
  host_free(first, 70000);
  const int64_t calls = host_memory().system_calls;
  void* const second = host_allocate(70000);
  EXPECT_EQ(first, second);
  EXPECT_EQ(host_memory().system_calls, calls);
  host_free(second, 70000);
}

TEST(AllocatorTest, SortedBlocksComeByAddress) {
  MemoryPool pool({"test", [](int64_t bytes) { return std::malloc(static_cast<size_t>(bytes)); },
                   [](void* block, int64_t) { std::free(block); }, nullptr, nullptr});
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(pool.allocate(5000));
  for (const size_t i : {2, 4, 0, 3, 1}) pool.free(blocks[i], 5000);
  std::sort(blocks.begin(), blocks.end());
  pool.sort();
  for (void* expected : blocks) EXPECT_EQ(pool.allocate(5000), expected);
  for (void* block : blocks) pool.free(block, 5000);
  pool.release();
}

TEST(AllocatorTest, ReleaseReturnsOnlyFreeBlocks) {
  char* const kept = static_cast<char*>(host_allocate(50000));
  host_free(host_allocate(60000), 60000);
  release_free_memory();
  const MemoryStats stats = host_memory();
  EXPECT_EQ(stats.bytes_reserved, stats.bytes_in_use);
  std::memset(kept, 1, 50000);
  host_free(kept, 50000);
}

TEST(AllocatorTest, RefusesWhatTheSystemCannotGive) {
  try {
    host_allocate(int64_t{1} << 47);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("140737488355328"), std::string::npos) << error.what();
  }
  EXPECT_THROW(host_allocate(-1), Error);
}

TEST(AllocatorTest, ManyThreads) {
  const int64_t before = host_memory().bytes_in_use;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 2000; ++i) {
        const int64_t bytes = 64 + (i * 37 + t) % 5000;
        char* const pointer = static_cast<char*>(host_allocate(bytes));
        pointer[0] = pointer[bytes - 1] = static_cast<char>(t);
        ASSERT_EQ(pointer[0], static_cast<char>(t));
        host_free(pointer, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(host_memory().bytes_in_use, before);
}

TEST(AllocatorTest, ServesStandardObjects) {
  const int64_t before = host_memory().bytes_in_use;
  {
    const auto shared = std::allocate_shared<int>(HostAllocator<int>(), 42);
    EXPECT_EQ(*shared, 42);
    EXPECT_GT(host_memory().bytes_in_use, before);
  }
  EXPECT_EQ(host_memory().bytes_in_use, before);
}

}  // namespace
}  // namespace tapestry
