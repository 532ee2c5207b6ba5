// Commands that answer standard input line by line.
#include <gmock/gmock.h>
#include <pty.h>

#include <algorithm>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

class FilterTest : public testing::Test {
 protected:
  TinyRunFolder folder_{"filter"};
};

// A process that asks line by line gets its answers line by line.
TEST_F(FilterTest, ALineIsAnsweredBeforeTheNextOneComes) {
  ASSERT_EQ(folder_.train("translation", "run", {"training.max_steps=5"}), 0) << folder_.messages();
  folder_.write("ask", concat("coproc T { '", tapestry_binary(), R"(' translate --model run; }
for line in 'ba ce' 'di fo'; do
  echo "$line" >&${T[1]}
  read -r -t 60 answer <&${T[0]} || exit 1
done
)"));
  EXPECT_EQ(std::system(concat("cd '", folder_.path(""), "' && bash ask").c_str()), 0);
}

// A window has 2,048 lines; nobody waits until slow lines fill it.
TEST_F(FilterTest, LinesThatComeSlowlyDoNotWaitForAWindow) {
  ASSERT_EQ(folder_.train("translation", "run", {"training.max_steps=5"}), 0) << folder_.messages();
  folder_.write("ask", concat(R"(set -m
mkfifo in
')",
                              tapestry_binary(), R"(' translate --model run <in >out &
exec 9>in
for i in $(seq 1000); do
  echo 'ba ce' >&9
  [ -s out ] && exit 0
  sleep 0.05
done
exit 1
)"));
  EXPECT_EQ(std::system(concat("cd '", folder_.path(""), "' && bash ask").c_str()), 0);
}

// Each of them writes the same to a file as to standard output, whether it reads a file or not.
TEST_F(FilterTest, FilesTakeThePlaceOfStandardInputAndOutput) {
  struct Use {
    const char* task;
    std::string command;
    std::string input;
  };
  const std::string lines = "ba ce di\n\nfo gu\nha\n";
  const Use uses[] = {
      {"translation", "translate --batch-size 2", lines},
      {"clm", "generate --seed 3", lines},
      {"clm", "score", "ba ce\nfo\n"},
      {"mlm", "fill-mask", "ba <mask>\n\n<mask> fo\n"},
      {"span_corruption", "fill-mask --batch-size 2", "ba <mask>\n\n<mask> fo\n"},
      {"classification", "classify --top-k 2", lines},
      {"tokens", "classify --detail jsonl", lines},
      {"questions", "answer", "ba ce di\tafter ba\n\n"},
      {"regression", "predict", "1\n\n2.5\n"},
  };
  for (const Use& use : uses) {
    SCOPED_TRACE(use.command);
    if (!std::filesystem::exists(folder_.path(use.task))) {
      ASSERT_EQ(folder_.train(use.task, use.task, {"training.max_steps=5"}), 0)
          << folder_.messages();
    }
    folder_.write("lines", use.input);
    folder_.write("lines.gz", gzip(use.input));
    const std::string command = concat(use.command, " --model ", use.task);
    const std::string expected = folder_.output(command + " --input -", use.input);
    EXPECT_EQ(folder_.output(command + " --input lines"), expected);
    EXPECT_EQ(folder_.output(command + " --input lines.gz --output answers"), "");
    EXPECT_EQ(read_file(folder_.path("answers")), expected);
    EXPECT_FALSE(std::filesystem::exists(folder_.path("answers.part")));
    // A file may be replaced by its own answers.
    EXPECT_EQ(folder_.output(command + " --input lines --output lines"), "");
    EXPECT_EQ(read_file(folder_.path("lines")), expected);
  }
}

TEST_F(FilterTest, AFailureLeavesTheOutputAsItWas) {
  ASSERT_EQ(folder_.train("translation", "run", {"training.max_steps=5"}), 0) << folder_.messages();
  folder_.write("answers", "of last week\n");
  const auto outcome =
      folder_.run("translate --model run --batch-size 1 --ill-formed error --output answers",
                  "ba ce\ndi\n\xFF\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(read_file(folder_.path("answers")), "of last week\n");
  EXPECT_EQ(lines_of(read_file(folder_.path("answers.part"))).size(), 2u);
  EXPECT_THAT(outcome.err, HasSubstr("note: the results up to here are in answers.part\n"));
  // A name that cannot be is told before the model is read.
  EXPECT_THAT(folder_.run("translate --model nowhere --output no/such/answers").err,
              HasSubstr("[output] cannot write to no/such/answers."));
  EXPECT_THAT(folder_.run("translate --model nowhere --input none").err, HasSubstr("none"));
  EXPECT_EQ(folder_.run("translate --model run --output .", "ba\n").code, 1);
  // A device is no file that could be half a result.
  EXPECT_EQ(folder_.run("translate --model run --output /dev/null", "ba\n").code, 0);
  EXPECT_FALSE(std::filesystem::exists("/dev/null.part"));
}

// Answers come in the order of the lines although batches are sorted by length, and do not wait for
// the last line of a long input.
TEST_F(FilterTest, LongInputsAreAnsweredInOrderAndBitByBit) {
  ASSERT_EQ(folder_.train("translation", "run", {"training.max_steps=200"}), 0)
      << folder_.messages();
  const std::string words[] = {"ba", "ce di", "", "fo gu ha", "je ki lo mu ba", " ", "di di"};
  std::string input;
  for (int i = 0; i < 100; ++i) input += words[i * i % 7] + '\n';
  const std::string whole = folder_.output("translate --model run --batch-size 1", input);
  for (const char* size : {"2", "5", "64"}) {
    EXPECT_EQ(folder_.output(concat("translate --model run --batch-size ", size), input), whole);
  }
  // The window of two batches of one line each holds the first lines back no longer than these.
  folder_.write("long", concat("coproc T { '", tapestry_binary(),
                               R"(' translate --model run --batch-size 2; }
for i in $(seq 40); do echo 'ba ce' >&${T[1]}; done
read -r -t 60 answer <&${T[0]} || exit 1
)"));
  EXPECT_EQ(std::system(concat("cd '", folder_.path(""), "' && bash long").c_str()), 0);
}

// A terminal behind stderr shows how far work of more than two seconds is, unless somebody types
// the lines or reads answers.
TEST_F(FilterTest, ATerminalShowsHowFarItIs) {
  ASSERT_EQ(folder_.train("translation", "run", {"training.max_steps=5"}), 0) << folder_.messages();
  std::string input;
  for (int i = 0; i < 30; ++i) input += "ba ce di\n";
  folder_.write("lines", input);
  const auto shown = [&](const std::string& arguments) {
    int terminal = -1;
    const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
      const std::string command =
          concat("cd '", folder_.path(""), "' && { cat lines; sleep 2.8; } | '", tapestry_binary(),
                 "' translate --model run --batch-size 1 ", arguments);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(99);
    }
    std::string text;
    char bytes[4096];
    for (ssize_t count; (count = read(terminal, bytes, sizeof bytes)) > 0;) {
      text.append(bytes, static_cast<size_t>(count));
    }
    close(terminal);
    EXPECT_EQ(TinyRunFolder::wait(child), 0) << arguments << text;
    return text;
  };
  const std::string bar = shown("--output answers");
  EXPECT_THAT(bar, testing::ContainsRegex("[0-9]+  lines  "));  // 30, where nothing else is at work
  EXPECT_GT(bar.rfind("\r\033[K"), bar.rfind("  lines  ")) << "what is left of it is cleared";
  EXPECT_EQ(lines_of(read_file(folder_.path("answers"))).size(), 30u);
  EXPECT_THAT(shown(""), testing::Not(HasSubstr("  lines  ")));
}

TEST_F(FilterTest, ClassifyNamesTheBestClasses) {
  ASSERT_EQ(folder_.train("classification", "classification", {"training.max_steps=5"}), 0)
      << folder_.messages();
  const std::string text = "ba ce di\n\nlo mu\n";
  const std::vector<std::string> one =
      lines_of(folder_.output("classify --model classification", text));
  const std::vector<std::string> two =
      lines_of(folder_.output("classify --model classification --top-k 2", text));
  const std::vector<std::string> nine =
      lines_of(folder_.output("classify --model classification --top-k 9 --batch-size 1", text));
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(two.size(), 3u);
  EXPECT_EQ(nine, two) << "there are two classes";
  EXPECT_EQ(two[1], "");
  for (const size_t i : {0, 2}) {
    EXPECT_TRUE(two[i].starts_with(one[i] + '\t')) << two[i];
    char first[9] = {}, second[9] = {};
    double p = 0, q = 0;
    ASSERT_EQ(std::sscanf(two[i].c_str(), "%8s %lf %8s %lf", first, &p, second, &q), 4) << two[i];
    EXPECT_GE(p, q);
    EXPECT_NEAR(p + q, 1, 1.1e-4);
    EXPECT_STRNE(first, second);
  }
}

// The file of a run says what the data told: a user reads it, or starts another run with it.
TEST_F(FilterTest, TheRunsConfigHasTheClassesOfTheData) {
  ASSERT_EQ(folder_.train("classification", "classification", {"training.max_steps=5"}), 0)
      << folder_.messages();
  EXPECT_THAT(read_file(folder_.path("classification/config.yaml")),
              HasSubstr("labels: [early, late]"));
}

}  // namespace
}  // namespace tapestry
