// train --stop-at: a run that stops at an update because it was asked to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(StopAtTest, ARunThatStoppedGoesOnWithTheSameBits) {
  const TinyRunFolder folder("stop-at");
  ASSERT_EQ(folder.train("clm", "run", {"--stop-at=17"}), 0) << folder.messages();
  EXPECT_THAT(folder.messages(),
              HasSubstr("stopped after update 17 as it was asked to; the same command without "
                        "--stop-at goes on from here"));
  ASSERT_EQ(folder.train("clm", "run"), 0) << folder.messages();
  expect_equal(folder.result("run"), plain("clm").result("run"));
}

TEST(StopAtTest, ARunThatIsPastTheUpdateSaysSo) {
  const TinyRunFolder folder("stop-at-past");
  ASSERT_EQ(folder.train("clm", "run", {"--stop-at=20"}), 0) << folder.messages();
  const CheckpointFiles before = read_checkpoint(folder.path("run/last"));
  for (const std::string update : {"10", "20"}) {
    folder.forget_messages();
    ASSERT_EQ(folder.train("clm", "run", {"--stop-at=" + update}), 0) << folder.messages();
    EXPECT_THAT(folder.messages(),
                HasSubstr(concat("nothing is trained: update 20 is there, --stop-at is ", update)));
    EXPECT_THAT(folder.messages(), Not(HasSubstr("as it was asked to")));
    expect_equal(read_checkpoint(folder.path("run/last")), before);
  }
}

// Weights that are not finite are not saved, and the run says from where it goes on.
TEST(StopAtTest, AStopWhoseSaveIsLateSaysWhereTheRunGoesOn) {
  const TinyRunFolder folder("stop-at-late");
  const std::vector<std::string> ruinous = {"training.learning_rate=1e38", "training.eval_steps=0",
                                            "training.lr_scheduler_type=constant",
                                            "training.save_steps=1", "--stop-at=6"};
  ASSERT_EQ(folder.train("clm", "anew", ruinous), 0) << folder.messages();
  EXPECT_THAT(folder.messages(), Not(HasSubstr("goes on from here")));
  const std::string last = std::filesystem::read_symlink(folder.path("anew/last")).string();
  EXPECT_THAT(folder.messages(), HasSubstr("stopped after update 6 as it was asked to"));
  EXPECT_THAT(folder.messages(), HasSubstr("goes on from the checkpoint of update " +
                                           last.substr(last.find('-') + 1)));
}

}  // namespace
}  // namespace tapestry
