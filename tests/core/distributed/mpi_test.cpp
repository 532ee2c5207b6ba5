// Ranks that are processes: mpirun -n 4 --oversubscribe core_tests --gtest_filter='UnderMpirun.*'
// (tests/CMakeLists.txt has it as core.UnderMpirun). Without a launcher there is nothing to test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>

#include <cstdlib>
#include <numeric>
#include <tuple>

#include "core/base/error.h"
#include "core/distributed/communicator.h"
#include "core/distributed/transport_mpi.h"

namespace tapestry {
namespace {

TEST(Launcher, IsKnownByTheEnvironment) {
  const char* const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE",
                                   "SLURM_STEP_NUM_TASKS"};
  for (const char* variable : variables) {
    if (getenv(variable) != nullptr) GTEST_SKIP() << variable << " is set";
  }
  EXPECT_FALSE(launched_with_others());
  for (const auto& [variable, value, expected] : {std::tuple{"OMPI_COMM_WORLD_SIZE", "1", false},
                                                  {"OMPI_COMM_WORLD_SIZE", "2", true},
                                                  {"PMIX_RANK", "0", true},
                                                  {"PMI_SIZE", "2", true},
                                                  {"SLURM_STEP_NUM_TASKS", "1", false},
                                                  {"SLURM_STEP_NUM_TASKS", "4", true}}) {
    setenv(variable, value, 1);
    EXPECT_EQ(launched_with_others(), expected) << variable << '=' << value;
    unsetenv(variable);
  }
}

// MPI starts and ends once in a process: one test.
TEST(UnderMpirun, BucketsTextsAndTheEnd) {
  if (!launched_with_others()) GTEST_SKIP() << "no launcher started this";
  load_mpi();
  Communicator communicator(open_mpi, {});
  const int rank = communicator.rank(), ranks = communicator.size();
  EXPECT_GT(ranks, 1);
  EXPECT_THAT(communicator.library(), testing::HasSubstr("mpi"));
  EXPECT_EQ(communicator.ranks_on_these_cores() > 0, true);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_EQ(communicator.hosts()[static_cast<size_t>(rank)], host);

  for (const size_t length : {size_t{0}, size_t{244}, size_t{3'000'000}}) {
    const auto text_of = [&](int r) { return std::string(length, static_cast<char>('a' + r)); };
    const auto texts = communicator.all_gather(text_of(rank));
    for (int r = 0; r < ranks; ++r) EXPECT_EQ(texts[static_cast<size_t>(r)], text_of(r));
    EXPECT_EQ(communicator.broadcast(text_of(rank)), text_of(0));
  }

  // Small and large messages, more than may be in flight.
  const int64_t slice = 300'000;
  std::vector<std::vector<float>> buckets;
  std::vector<Communicator::Ticket> tickets;
  for (int b = 0; b < 7; ++b) {
    const int64_t n = ranks * (b % 2 == 0 ? slice : 3);
    buckets.emplace_back(static_cast<size_t>(n), static_cast<float>((rank + 1) * (b + 1)));
  }
  for (auto& bucket : buckets) {
    tickets.push_back(
        communicator.start(Exchange::kAllReduce,
                           {bucket.data(), static_cast<int64_t>(bucket.size()), DType::kFloat32}));
  }
  for (int b = 0; b < 7; ++b) {
    communicator.wait(tickets[static_cast<size_t>(b)]);
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2 * (b + 1));
    const std::vector<float>& bucket = buckets[static_cast<size_t>(b)];
    EXPECT_EQ(std::count(bucket.begin(), bucket.end(), sum), std::ssize(bucket)) << "bucket " << b;
  }
  communicator.finish();
}

}  // namespace
}  // namespace tapestry
