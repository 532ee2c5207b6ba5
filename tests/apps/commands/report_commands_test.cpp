// `tapestry report` and `tapestry watch` on a run of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;

class ReportCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> few = {"training.max_steps=20", "training.eval_steps=10"};
    ASSERT_EQ(folder_.train("translation", "run", few), 0) << folder_.messages();
  }
  TinyRunFolder folder_{"report"};
};

TEST_F(ReportCommandsTest, TrainSaysWhereItsReportIs) {
  EXPECT_THAT(folder_.messages(), HasSubstr("report: "));
  EXPECT_THAT(read_file(folder_.path("run/report.html")), HasSubstr("\"metric\":\"nll\""));
}

TEST_F(ReportCommandsTest, AReportOfSeveralRuns) {
  ASSERT_EQ(folder_.train("translation", "other",
                          {"training.max_steps=20", "training.learning_rate=1e-3"}),
            0);
  const auto outcome = folder_.run("report run other --output both.html");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("the report of 2 runs is both.html"));
  EXPECT_THAT(read_file(folder_.path("both.html")),
              HasSubstr("\"differing\":[\"training.eval_steps\",\"training.learning_rate\"]"));
  EXPECT_EQ(folder_.run("report run --output -").out.substr(0, 15), "<!DOCTYPE html>");
}

TEST_F(ReportCommandsTest, NoRunIsAnErrorOfData) {
  const auto outcome = folder_.run("report nowhere --output page.html");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("nowhere has no metrics.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("page.html")));
  EXPECT_EQ(folder_.run("watch nowhere").code, 3);
}

// Without a terminal watch prints one picture of it.
TEST_F(ReportCommandsTest, WatchDrawsTheCurves) {
  const std::string out = folder_.output("watch run");
  EXPECT_THAT(out, HasSubstr("run: update 20 of 20"));
  EXPECT_THAT(out, HasSubstr("loss  ■ training"));
  EXPECT_THAT(out, HasSubstr("best nll"));
  EXPECT_THAT(out, Not(HasSubstr("\033")));
  EXPECT_LE(lines_of(out).size(), 24u);
  // A run that has only begun.
  std::filesystem::create_directories(folder_.path("new"));
  EXPECT_THAT(folder_.output("watch new"), HasSubstr("no lines in metrics.jsonl yet"));
}

}  // namespace
}  // namespace tapestry
