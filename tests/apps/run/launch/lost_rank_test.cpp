#include "apps/run/launch/lost_rank.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/environment_variable.h"

namespace tapestry {
namespace {

// As Open MPI 4.1.4 writes it, and the ranks.
constexpr const char* kKilled =
    "12:00:01 update 20\n"
    "--------------------------------------------------------------------------\n"
    "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).\n"
    "--------------------------------------------------------------------------\n";
constexpr const char* kSilent =
    "warning: rank 0, vm: [communicator] rank 3 (vm) is silent for 60 s; its last word was: none.\n"
    "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n"
    "with errorcode 1.\n";
constexpr const char* kNoMemory =
    "error: [rank 1, vm] out of memory.\n"
    "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n";

struct End {
  int code;
  const char* messages;
  const char* reason;  // null: no rank is lost
  int rank;
};

TEST(LostRankTest, ReasonsAreRead) {
  const End kEnds[] = {
      {137, kKilled, "process rank 2 with PID 0 on node vm exited on signal 9 (Killed).", 2},
      {1, kSilent, "[communicator] rank 3 (vm) is silent for 60 s; its last word was: none.", 3},
      {5, kNoMemory, "[rank 1, vm] out of memory.", 1},
      {5, "error: out of memory.", "out of memory.", -1},
      {1, "MPI_ABORT was invoked on rank 12 in c.\n", "MPI_ABORT was invoked on rank 12 in c.", 12},
      {137, "", "the ranks ended by signal 9", -1},
      {139, "12:00:01 error: of a log line\n", "the ranks ended by signal 11", -1},
      // The launcher refused to start ranks.
      {1, "mpirun has detected an attempt to run as root.\n", nullptr, -1},
      {0, kKilled, nullptr, -1},
      {2, "error: [rank 0, vm] run.yaml:3:1: unknown key\n", nullptr, -1},
      {3, "error: [rank 1, vm] valid.txt:3: no UTF-8.\n", nullptr, -1},
      {4, "error: [rank 0, vm] 10 updates in a row\n", nullptr, -1},
      {129, "", nullptr, -1},
      {130, "", nullptr, -1},
      {138, "", nullptr, -1},
      {143, kKilled, nullptr, -1}};
  for (const End& end : kEnds) {
    SCOPED_TRACE(concat(end.code, ' ', end.messages));
    const auto lost = lost_rank({.code = end.code, .signal = 0, .messages = end.messages});
    ASSERT_EQ(lost.has_value(), end.reason != nullptr);
    if (!lost) continue;
    EXPECT_EQ(lost->reason, end.reason);
    EXPECT_EQ(lost->rank, end.rank);
  }
}

TEST(LostRankTest, FewerRanksShareTheParts) {
  const std::vector<std::vector<int64_t>> kRows = {
      {8, 8, 4, 2, 1, 1}, {12, 12, 6, 3, 1, 1}, {6, 3, 1}, {3, 3, 1}, {16, 4, 2, 1}, {1, 1, 1}};
  for (const std::vector<int64_t>& row : kRows) {
    for (size_t i = 2; i < row.size(); ++i) EXPECT_EQ(fewer_ranks(row[0], row[i - 1]), row[i]);
  }
}

TEST(LostRankTest, TheGpuOfALostRankIsUsedNoMore) {
  const EnvironmentVariable unset("CUDA_VISIBLE_DEVICES", {});
  VisibleGpus gpus(4);
  EXPECT_EQ(gpus.environment(), Environment());
  gpus.lose(-1);
  gpus.lose(4);
  EXPECT_EQ(gpus.environment(), Environment());
  gpus.lose(1);
  EXPECT_EQ(gpus.environment(), (Environment{{"CUDA_VISIBLE_DEVICES", "0,2,3"}}));
  gpus.lose(1);  // of those that are left
  EXPECT_EQ(gpus.environment(), (Environment{{"CUDA_VISIBLE_DEVICES", "0,3"}}));
  const EnvironmentVariable listed("CUDA_VISIBLE_DEVICES", "GPU-a,5");
  VisibleGpus given(2);
  given.lose(0);
  EXPECT_EQ(given.environment(), (Environment{{"CUDA_VISIBLE_DEVICES", "5"}}));
}

}  // namespace
}  // namespace tapestry
