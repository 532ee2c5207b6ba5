#include "apps/run/outputs/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/checkpoint/files.h"
#include "core/base/error.h"

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
              ElementsAre(HasSubstr("info braces {} stay"), testing::EndsWith(" warning careful")));
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

// Reporters draw metrics of updates; one that changed nothing has none.
TEST_F(LogTest, ASkippedUpdateIsALineOfItsOwn) {
  RunLog(folder_, 0).skipped(7, {{"loss", NAN}, {"grad_norm", INFINITY}});
  EXPECT_THAT(lines_of("metrics.jsonl"),
              ElementsAre(R"({"step":7,"kind":"skipped","loss":null,"grad_norm":null})"));
}

TEST_F(LogTest, ExamplesAndStartsAreKeptUpToTheCheckpoint) {
  const auto details = [](const std::string& output) {
    ValidationDetails result;
    result.samples.push_back({.given = {{"class", "cat"}},
                              .picture = Picture{{1, 1, 1}, {9}},
                              .output = output,
                              .guesses = {{"cat", 0.75}}});
    result.length_metric = "bleu";
    result.lengths = {{1, 5, 20, 31.5}};
    result.confusion = Confusion{{"cat", "dog"}, {{3, 1}, {0, 2}}};
    return result;
  };
  {
    RunLog log(folder_, 0);
    log.started(0, {{"processor", "a"}});
    log.show(10, details("ca"));
    log.show(20, details("cat"));
  }
  {
    RunLog log(folder_, 10);
    log.started(10, {{"processor", "b"}});
    log.show(20, details("cats"));
  }
  const std::vector<std::string> lines = lines_of("samples.jsonl");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_THAT(lines[0], HasSubstr(R"({"step":10,"kind":"sample","example":0,"class":"cat",)"
                                  R"("output":"ca","guesses":[["cat",0.75]],"png":"iVBOR)"));
  EXPECT_EQ(lines[1], R"({"step":10,"kind":"lengths","metric":"bleu","groups":[{"from":1,"to":5,)"
                      R"("sentences":20,"score":31.5}]})");
  EXPECT_EQ(lines[2],
            R"({"step":10,"kind":"confusion","classes":["cat","dog"],"counts":[[3,1],[0,2]]})");
  EXPECT_THAT(lines[3], HasSubstr(R"("output":"cats")"));
  const std::vector<std::string> starts = lines_of("starts.jsonl");
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_THAT(starts[1], HasSubstr(R"({"step":10,"time":"20)"));
  EXPECT_THAT(starts[1], HasSubstr(R"("processor":"b"})"));
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

// Else a machine that goes down behind the rename could leave an empty file.
TEST_F(LogTest, LinesAreOnTheDiskBeforeTheyReplaceTheFile) {
  const std::string line = R"({"step":10,"kind":"train"})";
  std::ofstream(folder_ / "metrics.jsonl") << line << "\n{\"step\":20}\n";
  static std::vector<std::string> stages;
  static fs::path folder;
  stages.clear();
  folder = folder_;
  internal::checkpoint_stage_hook = [](const char* stage) {
    const auto bytes = static_cast<int64_t>(fs::file_size(folder / "metrics.jsonl"));
    stages.push_back(concat(stage, ", ", bytes));
  };
  { const RunLog log(folder_, 10); }
  internal::checkpoint_stage_hook = nullptr;
  const auto before = std::ssize(line) + 1 + std::ssize(std::string("{\"step\":20}\n"));
  EXPECT_THAT(stages, testing::IsSupersetOf({concat("file written, ", before),
                                             concat("folder flushed, ", std::ssize(line) + 1)}));
  EXPECT_THAT(lines_of("metrics.jsonl"), ElementsAre(line));
}

// A limit on the size of files fails like a full disk, halfway through a line, too.
TEST_F(LogTest, LinesThatCannotBeWrittenComeWhenTheyCan) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = limit.rlim_cur;
    RunLog log(folder_, 0);
    log.metrics(1, "train", {{"loss", 1}});
    limit.rlim_cur = 50;
    setrlimit(RLIMIT_FSIZE, &limit);
    log.metrics(2, "train", {{"loss", 2}});
    log.info("a message");
    log.metrics(3, "train", {{"loss", 3}});
    limit.rlim_cur = before;
    setrlimit(RLIMIT_FSIZE, &limit);
    log.metrics(4, "train", {{"loss", 4}});
    log.info("the last");
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::vector<std::string> expected;
  for (int step = 1; step <= 4; ++step) {
    expected.push_back(concat(R"({"step":)", step, R"(,"kind":"train","loss":)", step, ".0}"));
  }
  EXPECT_EQ(lines_of("metrics.jsonl"), expected);
  const std::vector<std::string> messages = lines_of("train.log");
  const auto warnings = std::count_if(messages.begin(), messages.end(), [](const auto& line) {
    return line.find("metrics.jsonl cannot be written: File too large") != std::string::npos;
  });
  EXPECT_EQ(warnings, 1);
  EXPECT_THAT(messages.back(), HasSubstr("the last"));
}

TEST_F(LogTest, ALinkIsNotFollowed) {
  std::ofstream(folder_ / "precious") << "data";
  fs::create_symlink("precious", folder_ / "train.log");
  EXPECT_THROW(RunLog(folder_, 0), Error);
}

TEST_F(LogTest, ControlBytesDoNotReachTheTerminal) {
  testing::internal::CaptureStderr();
  RunLog(folder_, 0).warn("\x1b[2Jgone\r");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("\\x1b[2Jgone\\x0d\n"));
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
