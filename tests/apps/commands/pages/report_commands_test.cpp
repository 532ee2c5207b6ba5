// `tapestry report` and `tapestry watch` on a run of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// `tapestry watch RUN` on a terminal of its own, 80 x 24.
class WatchedTerminal {
 public:
  explicit WatchedTerminal(std::string run) {
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      const std::string binary = tapestry_binary();
      execl(binary.c_str(), binary.c_str(), "watch", run.c_str(), "--interval", "600", nullptr);
      _exit(99);
    }
  }
  ~WatchedTerminal() { close(terminal_); }
  WatchedTerminal(const WatchedTerminal&) = delete;
  WatchedTerminal& operator=(const WatchedTerminal&) = delete;

  // Presses a key, "" for none; the frame after it, or what came if there is none in a minute.
  std::string frame_after(const std::string& key) {
    EXPECT_EQ(write(terminal_, key.data(), key.size()), std::ssize(key));
    std::string bytes;
    pollfd output{terminal_, POLLIN, 0};
    while (bytes.find("\033[J") == std::string::npos && poll(&output, 1, 60000) > 0) {
      char part[4096];
      const ssize_t count = read(terminal_, part, sizeof part);
      if (count <= 0) break;
      bytes.append(part, static_cast<size_t>(count));
    }
    return bytes;
  }
  // Its exit code after the key that leaves it.
  int leave() {
    frame_after("q");
    return TinyRunFolder::wait(child_);
  }

 private:
  int terminal_ = -1;
  pid_t child_ = -1;
};

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

// Charts that do not fit are on further pages, and the first line tells the keys.
TEST_F(ReportCommandsTest, KeysTurnThePagesOfWatch) {
  folder_.write("run/starts.jsonl", "{\"step\":0}\n{\"step\":10}\n{\"step\":20}\n");
  EXPECT_THAT(folder_.output("watch run"), AllOf(HasSubstr("  1 resume "), Not(HasSubstr("page"))));
  WatchedTerminal terminal(folder_.path("run"));
  const auto is_first = AllOf(HasSubstr("n, p: page 1 of 4  q: leave"), HasSubstr("best nll"),
                              HasSubstr("1 resume"), HasSubstr("\033[1mloss"));
  const auto is_last = AllOf(HasSubstr("page 4 of 4"), HasSubstr("\033[1mpeak bytes"),
                             Not(HasSubstr("\033[1mloss")));
  EXPECT_THAT(terminal.frame_after(""), is_first);
  EXPECT_THAT(terminal.frame_after("n"), HasSubstr("page 2 of 4"));
  EXPECT_THAT(terminal.frame_after(" "), HasSubstr("page 3 of 4"));
  EXPECT_THAT(terminal.frame_after("n"), is_last);
  EXPECT_THAT(terminal.frame_after("n"), is_first);
  EXPECT_THAT(terminal.frame_after("p"), is_last);
  EXPECT_EQ(terminal.leave(), 0);
}

}  // namespace
}  // namespace tapestry
