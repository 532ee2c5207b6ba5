#include "core/distributed/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/core/distributed/ranks.h"

namespace tapestry {
namespace {

using test::hosts_of;
using test::on_ranks;
using testing::Each;

TEST(MeasureLink, AloneThereIsNone) {
  Communicator alone;
  const Link link = measure_link(alone);
  EXPECT_EQ(link.latency_seconds, 0);
  EXPECT_TRUE(std::isinf(link.bytes_per_second));
}

// Each message takes up to 10 ms: of the several of a small exchange the last one counts.
TEST(MeasureLink, AllRanksGetTheFiguresOfTheSlowest) {
  for (const auto& hosts : {hosts_of(2), hosts_of(3), hosts_of(4, 2)}) {
    const int ranks = static_cast<int>(hosts.size());
    LocalJob job({.hosts = hosts, .longest_delay_seconds = 0.01, .seed = 4});
    std::mutex mutex;
    std::vector<Link> links;
    const auto errors = on_ranks(job, ranks, [&](Communicator& communicator) {
      const Link link = measure_link(communicator, {.bucket_bytes = 4000, .seconds = 0.05});
      const std::lock_guard lock(mutex);
      links.push_back(link);
    });
    EXPECT_THAT(errors, Each(""));
    for (const Link& link : links) {
      EXPECT_EQ(link.latency_seconds, links[0].latency_seconds);
      EXPECT_EQ(link.bytes_per_second, links[0].bytes_per_second);
    }
    EXPECT_GT(links[0].latency_seconds, 0.003);
    EXPECT_LT(links[0].latency_seconds, 1);
    // Four buckets of 4 kB in flight, two rounds of some 5 ms each: below 4 MB/s, on any machine.
    EXPECT_GT(links[0].bytes_per_second, 0);
    EXPECT_LT(links[0].bytes_per_second, 4e7);
  }
}

TEST(BytesSent, AreThoseOfBothWays) {
  EXPECT_EQ(bytes_sent(100, 1), 0);
  EXPECT_EQ(bytes_sent(100, 2), 100);
  EXPECT_EQ(bytes_sent(100, 4), 150);
}

}  // namespace
}  // namespace tapestry
