#include "core/cpu/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <algorithm>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/cpu/cores.h"

namespace tapestry {
namespace {

class ParallelTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_num_threads(GetParam()); }
  void TearDown() override { set_num_threads(0); }
};

std::vector<int> visits(int64_t tiles) {
  std::vector<std::atomic<int>> counts(static_cast<size_t>(tiles));
  parallel_for(tiles, [&](int64_t tile) { counts[static_cast<size_t>(tile)].fetch_add(1); });
  return {counts.begin(), counts.end()};
}

TEST_P(ParallelTest, RunsEveryTileOnce) {
  EXPECT_EQ(num_threads(), GetParam());
  for (const int64_t tiles : {0, 1, 2, 3, 7, 64, 5000}) {
    EXPECT_EQ(visits(tiles), std::vector<int>(static_cast<size_t>(tiles), 1));
  }
  parallel_for(-1, [](int64_t) { FAIL(); });
}

// Many short jobs, with pauses in which workers fall asleep: a lost wake-up would hang or miss
// tiles.
TEST_P(ParallelTest, ManyJobsInARow) {
  int64_t sum = 0;
  for (int job = 0; job < 3000; ++job) {
    std::atomic<int64_t> part{0};
    parallel_for(1 + job % 9, [&](int64_t tile) { part += tile + 1; });
    sum += part;
    if (job % 300 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  int64_t expected = 0;
  for (int64_t job = 0; job < 3000; ++job) expected += (1 + job % 9) * (2 + job % 9) / 2;
  EXPECT_EQ(sum, expected);
}

// The next job reads what a tile wrote, on any thread.
TEST_P(ParallelTest, JobsSeeWhatTheLastOneWrote) {
  std::vector<int64_t> values(4096, 0);
  for (int64_t job = 0; job < 200; ++job) {
    parallel_ranges(4096, 100, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[4095 - i] += 1;
    });
  }
  EXPECT_EQ(values, std::vector<int64_t>(4096, 200));
}

TEST_P(ParallelTest, NestedCallsStayOnTheirThread) {
  std::atomic<int> calls{0}, strangers{0};
  parallel_for(8, [&](int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(5, [&](int64_t) {
      ++calls;
      strangers += std::this_thread::get_id() != outer;
    });
  });
  EXPECT_EQ(calls, 40);
  EXPECT_EQ(strangers, 0);
}

TEST_P(ParallelTest, ThrowsTheFirstExceptionAgain) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<int> begun{0};
    try {
      parallel_for(1000, [&](int64_t tile) {
        ++begun;
        if (tile == 3) throw std::runtime_error("tile 3");
        std::this_thread::yield();
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "tile 3");
    }
    EXPECT_GE(begun, 4);
    EXPECT_LE(begun, 1000);
    EXPECT_EQ(visits(100), std::vector<int>(100, 1)) << "the threads serve on";
  }
}

TEST_P(ParallelTest, NestedExceptionComesOut) {
  EXPECT_THROW(
      parallel_for(
          4, [](int64_t) { parallel_for(4, [](int64_t) { throw std::logic_error("inner"); }); }),
      std::logic_error);
}

TEST_P(ParallelTest, CallsFromSeveralThreadsAllFinish) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int job = 0; job < 200; ++job) parallel_for(10, [&](int64_t tile) { total += tile; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 200 * 45);
}

TEST_P(ParallelTest, RangesCoverTheTotal) {
  for (const int64_t total : {0, 1, 99, 100, 101, 1000}) {
    std::vector<std::atomic<int>> counts(static_cast<size_t>(total));
    parallel_ranges(total, 100, [&](int64_t begin, int64_t end) {
      EXPECT_LE(end - begin, 100);
      EXPECT_EQ(begin % 100, 0);
      for (int64_t i = begin; i < end; ++i) counts[static_cast<size_t>(i)].fetch_add(1);
    });
    for (const auto& count : counts) ASSERT_EQ(count, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTest, ::testing::Values(1, 2, 3, 5));

// Tiles that last long enough are spread over all threads.
TEST(Parallel, UsesEveryThread) {
  set_num_threads(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  parallel_for(3, [&](int64_t) {
    while (std::chrono::steady_clock::now() < deadline) {
      std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      if (seen.size() == 3) break;
    }
  });
  EXPECT_EQ(seen.size(), 3u);
  set_num_threads(0);
}

TEST(Parallel, ThreadCountChangesBetweenJobs) {
  for (const int threads : {1, 4, 2, 2, 7, 1}) {
    set_num_threads(threads);
    EXPECT_EQ(num_threads(), threads);
    EXPECT_EQ(visits(50), std::vector<int>(50, 1));
  }
  set_num_threads(0);
  EXPECT_EQ(num_threads(), static_cast<int>(allowed_cores().size()));
}

// A launcher that binds a rank to a core leaves it that core.
TEST(Parallel, AllCoresAreThoseOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(allowed_cores().size(), static_cast<size_t>(CPU_COUNT(&before)));
  const int last = allowed_cores().back();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(allowed_cores(), std::vector<int>{last});
  set_num_threads(0);
  EXPECT_EQ(num_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  set_num_threads(0);
}

TEST(Parallel, OnThisThreadOnlyKeepsWorkHere) {
  set_num_threads(3);
  const auto threads_of = [] {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    parallel_for(64, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
    return threads;
  };
  {
    const OnThisThreadOnly here;
    EXPECT_EQ(threads_of(), std::set{std::this_thread::get_id()});
  }
  // A worker that sleeps takes a while to come.
  size_t most = 0;
  for (int i = 0; i < 1000 && most < 2; ++i) most = std::max(most, threads_of().size());
  EXPECT_GT(most, 1u);
  set_num_threads(0);
}

}  // namespace
}  // namespace tapestry
