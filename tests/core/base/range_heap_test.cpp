#include "core/base/range_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/base/philox.h"

namespace tapestry {
namespace {

TEST(RangeHeapTest, NeighboursBecomeOneRange) {
  RangeHeap heap(1 << 20);
  const int64_t a = heap.take(100), b = heap.take(64), c = heap.take(1000), d = heap.take(1);
  EXPECT_EQ(a, 0);
  EXPECT_EQ(b, 128);  // blocks are multiples of 64
  EXPECT_EQ(c, 192);
  EXPECT_EQ(d, 192 + 1024);
  heap.give(a, 100);
  heap.give(c, 1000);
  EXPECT_EQ(heap.free_ranges().size(), 2u);
  heap.give(b, 64);
  ASSERT_EQ(heap.free_ranges().size(), 1u);
  EXPECT_EQ(heap.take(192 + 1024), 0);  // fits the three together
  EXPECT_EQ(heap.top(), d + 64);
}

TEST(RangeHeapTest, TakesTheRangeThatFitsBestAndGrowsAtTheEnd) {
  RangeHeap heap(4096);
  std::vector<int64_t> blocks;
  for (const int64_t bytes : {640, 64, 192, 64, 320, 64}) blocks.push_back(heap.take(bytes));
  heap.give(blocks[0], 640);
  heap.give(blocks[2], 192);
  heap.give(blocks[4], 320);
  EXPECT_EQ(heap.take(128), blocks[2]);
  EXPECT_EQ(heap.take(256), blocks[4]);
  EXPECT_EQ(heap.take(640), blocks[0]);
  // What lies free at the end is the beginning of a block that needs more.
  heap.give(blocks[5], 64);
  const int64_t top = heap.top();
  EXPECT_EQ(heap.top_after(1024), blocks[5] - 64 + 1024);
  EXPECT_EQ(heap.take(1024), blocks[5] - 64);
  EXPECT_EQ(heap.top(), blocks[5] - 64 + 1024);
  EXPECT_GT(heap.top(), top);
  EXPECT_EQ(heap.take(4096), -1);
  EXPECT_EQ(heap.top(), blocks[5] - 64 + 1024);
}

// Blocks never overlap, and when all are free there is one range.
TEST(RangeHeapTest, AnyOrder) {
  RangeHeap heap(int64_t{1} << 30);
  std::vector<std::pair<int64_t, int64_t>> live;
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto draw = [&](int64_t below, uint32_t stream) {
      return philox_below({.seed = 5, .step = 0, .stream = stream}, i, below);
    };
    if (!live.empty() && draw(100, 1) < 49) {
      const auto at = static_cast<size_t>(draw(std::ssize(live), 2));
      heap.give(live[at].first, live[at].second);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      const int64_t bytes = 1 + draw(int64_t{1} << (4 + draw(14, 3)), 4);
      live.emplace_back(heap.take(bytes), bytes);
    }
  }
  std::ranges::sort(live);
  int64_t end = 0;
  for (const auto& [begin, bytes] : live) {
    ASSERT_GE(begin, end);
    end = begin + bytes;
  }
  EXPECT_LE(end, heap.top());
  for (const auto& [begin, bytes] : live) heap.give(begin, bytes);
  ASSERT_EQ(heap.free_ranges().size(), 1u);
  EXPECT_EQ(heap.free_ranges().begin()->second, heap.top());
}

}  // namespace
}  // namespace tapestry
