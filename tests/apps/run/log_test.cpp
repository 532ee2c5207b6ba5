#include "apps/run/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / concat("tapestry-log-", getpid(), "-", name);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> lines_of(const std::string& file) const {
    std::ifstream in(folder_ / file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  fs::path folder_;
};

TEST_F(LogTest, MessagesGoToStderrAndToTheFile) {
  testing::internal::CaptureStderr();
  {
    RunLog log(folder_, 0);
    log.info("braces {} stay");
    log.warn("careful");
    log.progress(1, 2, "no terminal, no bar");
  }
  const std::string console = testing::internal::GetCapturedStderr();
  EXPECT_THAT(console, MatchesRegex("..:..:.. braces \\{\\} stay\n..:..:.. warning: careful\n"));
  EXPECT_THAT(lines_of("train.log"),
              ElementsAre(HasSubstr("info braces {} stay"), HasSubstr("warning: careful")));
}

TEST_F(LogTest, TheFileIsContinuedByTheNextRun) {
  testing::internal::CaptureStderr();
  { RunLog(folder_, 0).info("first"); }
  { RunLog(folder_, 0).info("second"); }
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines_of("train.log"), ElementsAre(HasSubstr("first"), HasSubstr("second")));
}

TEST_F(LogTest, MetricsAreOneObjectALine) {
  RunLog log(folder_, 0);
  log.metrics(5, "train", {{"loss", 0.1}, {"ppl", std::exp(1e9)}});
  // Written at once, not when the run ends.
  EXPECT_THAT(lines_of("metrics.jsonl"),
              ElementsAre(R"({"step":5,"kind":"train","loss":0.1,"ppl":null})"));
}

TEST_F(LogTest, ResumingCutsWhatIsWrittenAgain) {
  std::ofstream(folder_ / "metrics.jsonl") << R"({"step":10,"kind":"train","loss":2.0})"
                                           << "\n"
                                           << R"({"step":20,"kind":"train"})"
                                           << "\n"
                                           << R"({"step":20,"kind":"valid"})"
                                           << "\n"
                                           << "7\n[]\n{\"step\":\"x\"}\n\n"
                                           << R"({"step":30,"kind":"train"})"
                                           << "\n"
                                           << R"({"step":4)";
  RunLog log(folder_, 20);
  log.metrics(30, "train", {});
  EXPECT_THAT(
      lines_of("metrics.jsonl"),
      ElementsAre(R"({"step":10,"kind":"train","loss":2.0})", R"({"step":20,"kind":"train"})",
                  R"({"step":20,"kind":"valid"})", R"({"step":30,"kind":"train"})"));
}

TEST_F(LogTest, AFolderThatCannotBeWrittenIsAnError) {
  std::ofstream(folder_ / "file") << "no folder";
  EXPECT_THROW(RunLog((folder_ / "file").string(), 0), Error);
}

TEST(DurationText, PicksTheUnit) {
  EXPECT_EQ(duration_text(0.4), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m 00s");
  EXPECT_EQ(duration_text(3599), "59m 59s");
  EXPECT_EQ(duration_text(3725), "1h 02m");
  EXPECT_EQ(duration_text(-1), "0s");
}

}  // namespace
}  // namespace tapestry
