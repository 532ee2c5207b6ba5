// tapestry train --ranks: what follows the end of its ranks. Most tests put a script in mpirun's
// place; those of whole trainings need Open MPI.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/apps/run/long_run.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class LauncherTest : public testing::Test {
 protected:
  /// A program `mpirun` that notes its arguments and does this.
  void mpirun_does(const std::string& script) const {
    std::filesystem::create_directory(folder_.path("bin"));
    folder_.write("bin/mpirun", concat("#!/bin/sh\necho \"$*\" >>starts\n", script));
    std::filesystem::permissions(folder_.path("bin/mpirun"), std::filesystem::perms::owner_all);
  }
  TinyRunFolder::Outcome launch(const std::string& arguments) const {
    return folder_.run_with(concat("REAL=\"$(command -v mpirun)\" PATH='", folder_.path("bin"),
                                   "':\"$PATH\" ", folder_.mpi_variables()),
                            "train clm.yaml output_dir=run " + arguments);
  }
  /// Of each start of mpirun the number of ranks, and how it resumes.
  std::vector<std::string> starts() const {
    std::vector<std::string> all;
    for (const std::string& line : lines_of(read_file(folder_.path("starts")))) {
      const auto word_after = [&](const std::string& option) {
        const size_t begin = line.find(option) + option.size();
        return line.substr(begin, line.find(' ', begin) - begin);
      };
      all.push_back(word_after("-np ") + ' ' + word_after("--resume "));
    }
    return all;
  }

  TinyRunFolder folder_ = TinyRunFolder("launcher");
};

constexpr const char* kShrinks =
    "distributed.on_failure=shrink distributed.parts=8 training.gradient_accumulation_steps=8 "
    "--ranks 8 ";
constexpr const char* kLosesARank =
    "echo 'mpirun noticed that process rank 1 with PID 7 on node a exited on signal 9.' >&2\n"
    "exit 137\n";

TEST_F(LauncherTest, ALossThatRepeatsEndsTheRunWithItsFirstMessage) {
  mpirun_does(concat("grep -c . starts >&2\n", kLosesARank));
  const TinyRunFolder::Outcome outcome = launch(kShrinks);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(
      outcome.err,
      HasSubstr("error: [train] a rank was lost twice with no new checkpoint between; at "
                "the first time: process rank 1 with PID 7 on node a exited on signal 9.\n"));
  EXPECT_THAT(starts(), ElementsAre("8 auto", "4 auto"));
}

TEST_F(LauncherTest, EachNewCheckpointAllowsAnotherLoss) {
  mpirun_does(concat("mkdir -p run/checkpoint-$(grep -c . starts)\n",
                     "echo \"$TAPESTRY_LAUNCH_STORY\" >>stories\n", kLosesARank));
  const TinyRunFolder::Outcome outcome = launch(concat(kShrinks, "--resume never"));
  // The last start, of one rank, needs no mpirun, and refuses those checkpoints.
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("is whole"));
  EXPECT_THAT(starts(), ElementsAre("8 never", "4 auto", "2 auto"));
  const std::string reason = ": process rank 1 with PID 7 on node a exited on signal 9.\n";
  EXPECT_EQ(read_file(folder_.path("stories")), concat("\na rank was lost, 4 of 8 go on", reason,
                                                       "a rank was lost, 2 of 4 go on", reason));
}

TEST_F(LauncherTest, OtherEndsAreFinal) {
  for (const int code : {0, 2, 3, 4, 130, 143}) {
    mpirun_does(concat("exit ", code, '\n'));
    EXPECT_EQ(launch(kShrinks).code, code);
  }
  EXPECT_EQ(starts().size(), 6u);
}

TEST_F(LauncherTest, ByDefaultALossIsTheEnd) {
  mpirun_does(kLosesARank);
  const TinyRunFolder::Outcome outcome = launch("--ranks 8");
  EXPECT_EQ(outcome.code, 137);
  EXPECT_THAT(outcome.err, HasSubstr("process rank 1 with PID 7"));
  EXPECT_THAT(starts(), ElementsAre("8 auto"));
}

TEST_F(LauncherTest, ASignalAsksTheRanksToSave) {
  mpirun_does(
      "trap 'echo saved >&2; exit 138' USR1\n"
      "kill -TERM $PPID\n"
      "for i in $(seq 100); do sleep 0.1; done\n");
  const TinyRunFolder::Outcome outcome = launch(kShrinks);
  EXPECT_EQ(outcome.code, 143);
  EXPECT_THAT(outcome.err, HasSubstr("saved"));
  EXPECT_EQ(starts().size(), 1u);
}

TEST_F(LauncherTest, RanksEndWithTheirLauncher) {
  mpirun_does(
      "trap 'echo ended >end; exit 1' TERM\n"
      "kill -KILL $PPID\n"
      "for i in $(seq 100); do sleep 0.1; done\n");
  launch(kShrinks);
  for (int i = 0; i < 100 && !std::filesystem::exists(folder_.path("end")); ++i) {
    sleep_milliseconds(100);
  }
  EXPECT_TRUE(std::filesystem::exists(folder_.path("end")));
}

TEST_F(LauncherTest, ItNeedsMpirun) {
  const TinyRunFolder::Outcome outcome =
      folder_.run_with("PATH=/nowhere", "train clm.yaml output_dir=run --ranks 2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("error: [launch] cannot run mpirun"));
}

TEST_F(LauncherTest, WhatCannotHoldIsRefused) {
  const TinyRunFolder::Outcome nested =
      folder_.run_with("OMPI_COMM_WORLD_SIZE=2", "train clm.yaml output_dir=run --ranks 2");
  EXPECT_EQ(nested.code, 2);
  EXPECT_THAT(nested.err, HasSubstr("leave out --ranks, or the launcher"));
  const TinyRunFolder::Outcome apart =
      folder_.run("train clm.yaml output_dir=run --ranks 2 distributed.engine=none");
  EXPECT_EQ(apart.code, 2);
  EXPECT_THAT(apart.err, HasSubstr("--ranks is for ranks that train together"));
  if (!can_start_ranks()) GTEST_SKIP() << "no mpirun, or built without MPI";
  const TinyRunFolder::Outcome launched = folder_.run_ranks(
      2,
      "train clm.yaml output_dir=run distributed.on_failure=shrink distributed.parts=2 "
      "training.gradient_accumulation_steps=2");
  EXPECT_EQ(launched.code, 2);
  EXPECT_THAT(launched.err, HasSubstr("shrink is for tapestry train --ranks RANKS"));
}

/// Whole trainings that lose a process at each start of mpirun.
class ShrinkTest : public LauncherTest {
 protected:
  void SetUp() override {
    if (!can_start_ranks()) GTEST_SKIP() << "no mpirun, or built without MPI";
  }
  /// mpirun, and `kill -9` of rank 1, or of mpirun itself, once this shell condition holds.
  void mpirun_loses(const std::string& process, const std::string& condition) const {
    mpirun_does(
        concat("[ -n \"$REAL\" ] && [ ! \"$REAL\" -ef \"$0\" ] || exit 99\n"
               "before=$(readlink run/last)\n"
               "\"$REAL\" \"$@\" & job=$!\n"
               "rank() { for p in $(pgrep -P $job); do tr '\\0' '\\n' <\"/proc/$p/environ\" | "
               "grep -qx OMPI_COMM_WORLD_RANK=1 && echo $p; done; }\n"
               "while kill -0 $job 2>/dev/null && ! ( ",
               condition, " ); do sleep 0.02; done\nkill -9 ", process, "\nwait $job\nexit $?\n"));
  }
  void expect_undisturbed_bits(int parts, const std::string& options) const {
    const std::string training =
        concat("training.gradient_accumulation_steps=", parts, " distributed.parts=", parts, ' ',
               kLongRun, " training.save_steps=20 training.eval_steps=0 ");
    const TinyRunFolder::Outcome alone = folder_.run("train clm.yaml output_dir=alone " + training);
    ASSERT_EQ(alone.code, 0) << alone.err;
    const TinyRunFolder::Outcome outcome = launch(training + options);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_equal(folder_.result("alone"), folder_.result("run"));
  }
  std::string log() const { return read_file(folder_.path("run/train.log")); }
};

constexpr const char* kNewCheckpoint = "[ \"$(readlink run/last)\" != \"$before\" ]";

TEST_F(ShrinkTest, TwoLostRanksOfFourChangeNoBit) {
  mpirun_loses("$(rank)", kNewCheckpoint);
  expect_undisturbed_bits(4, "--ranks 4 distributed.on_failure=shrink");
  EXPECT_THAT(starts(), ElementsAre("4 auto", "2 auto"));
  EXPECT_THAT(log(), HasSubstr("warning a rank was lost, 2 of 4 go on: process rank 1 with PID"));
  EXPECT_THAT(log(), HasSubstr("warning a rank was lost, 1 of 2 goes on: process rank 1 with PID"));
  const std::vector<std::string> facts = lines_of(read_file(folder_.path("run/starts.jsonl")));
  ASSERT_EQ(facts.size(), 3u);
  EXPECT_THAT(facts[0], Not(HasSubstr("\"launch\"")));
  EXPECT_THAT(facts[1], HasSubstr("\"launch\":\"a rank was lost, 2 of 4 go on: "));
}

// Before there is a checkpoint, it begins again.
TEST_F(ShrinkTest, ARankLostAtTheStartChangesNoBit) {
  mpirun_loses("$(rank)", "[ -n \"$(rank)\" ]");
  expect_undisturbed_bits(3, "--ranks 3 distributed.on_failure=shrink distributed.shard=optimizer");
  EXPECT_THAT(starts(), ElementsAre("3 auto"));
  EXPECT_THAT(log(), HasSubstr("a rank was lost, 1 of 3 goes on: "));
}

// Its ranks are gone before others start.
TEST_F(ShrinkTest, ALostLauncherChangesNoBit) {
  mpirun_loses("$job", kNewCheckpoint);
  expect_undisturbed_bits(2, "--ranks 2 distributed.on_failure=shrink");
  EXPECT_THAT(log(), HasSubstr("a rank was lost, 1 of 2 goes on: the ranks ended by signal 9\n"));
}

}  // namespace
}  // namespace tapestry
