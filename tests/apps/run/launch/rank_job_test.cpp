#include "apps/run/launch/rank_job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/base/clock.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

// No other child of a process that runs a job may run: each has a process of its own, which ends by
// the job's code.
[[noreturn]] void exit_as(const std::vector<std::string>& command, double patience) {
  std::exit(run_rank_job({.command = command, .patience = patience}).code);
}

class RankJobTest : public testing::Test {
 protected:
  RankJobTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(RankJobTest, EndsAsItsCommand) {
  EXPECT_EXIT(exit_as({"sh", "-c", "echo heard >&2; exit 7"}, 30), testing::ExitedWithCode(7),
              "heard");
  EXPECT_EXIT(exit_as({"sh", "-c", "kill -9 $$"}, 30), testing::ExitedWithCode(128 + SIGKILL), "");
}

TEST_F(RankJobTest, IsKilledWhenNoRankIsLeft) {
  const auto killed = testing::ExitedWithCode(128 + SIGKILL);
  EXPECT_EXIT(exit_as({"sleep", "1000"}, 0.2), killed, "");
  EXPECT_EXIT(exit_as({"sh", "-c", "sleep 1000; true"}, 0.2), killed, "");
}

// Started by the next test, under whose job it is a rank.
TEST_F(RankJobTest, DISABLED_LivesLongerThanItsPatience) { usleep(1'500'000); }

TEST_F(RankJobTest, LivesAsLongAsARankDoes) {
  const std::string rank =
      concat(std::filesystem::read_symlink("/proc/self/exe").string(),
             " --gtest_also_run_disabled_tests --gtest_filter=*.DISABLED_LivesLonger* "
             "--gtest_brief=0 | grep -q 'OK ] RankJob'");
  EXPECT_EXIT(exit_as({"sh", "-c", rank + " && exit 5"}, 0.3), testing::ExitedWithCode(5), "");
}

}  // namespace
}  // namespace tapestry
