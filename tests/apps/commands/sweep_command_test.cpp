// tapestry sweep: its table, its trials as ordinary runs, and its way to go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

const std::string kSpace =
    "training.learning_rate=1e-3..5e-2:log model.dropout=0,0.2 training.max_steps=40 "
    "training.eval_steps=10 --trials 4 --halving";

std::string best_trial(const std::string& table) {
  return "trial-" + lines_of(table).at(1).substr(0, 3);
}

TEST(SweepCommandTest, OneAndTwoProcessesFindTheSame) {
  const TinyRunFolder folder("sweep-processes");
  const std::string one = folder.output("sweep clm.yaml " + kSpace + " --output one");
  const std::string two = folder.output("sweep clm.yaml " + kSpace + " --output two --processes 2");
  EXPECT_EQ(one, two);
  const std::vector<std::string> lines = lines_of(one);
  ASSERT_EQ(lines.size(), 5);
  EXPECT_THAT(lines[0], HasSubstr("nll"));
  EXPECT_THAT(lines[1], HasSubstr("  40  "));  // the last one trains to its end
  EXPECT_THAT(lines[2], HasSubstr("  20  "));
  EXPECT_THAT(lines[4], HasSubstr("  10  "));
  EXPECT_TRUE(std::filesystem::exists(folder.path("one/report.html")));
  for (const std::string trial : {"trial-001", "trial-002", "trial-003", "trial-004"}) {
    expect_equal(folder.result("one/" + trial), folder.result("two/" + trial));
  }
}

// A trial that went through all rungs has the weights of a run that was never interrupted.
TEST(SweepCommandTest, ATrialIsAnOrdinaryRun) {
  const TinyRunFolder folder("sweep-ordinary");
  const TinyRunFolder::Outcome outcome = folder.run("sweep clm.yaml " + kSpace + " --output swept");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string said = outcome.err.substr(outcome.err.find("best: tapestry train clm.yaml "));
  std::vector<std::string> overrides;
  std::istringstream words(said.substr(std::string("best: tapestry train clm.yaml ").size()));
  for (std::string word; words >> word;) overrides.push_back(word);
  ASSERT_EQ(overrides.size(), 4) << said;
  ASSERT_EQ(folder.train("clm", "whole", overrides), 0) << folder.messages();
  const std::string best = best_trial(outcome.out);
  expect_equal(folder.result("swept/" + best), folder.result("whole"));
  EXPECT_EQ(folder.metrics("swept/" + best).size(), folder.metrics("whole").size());
}

TEST(SweepCommandTest, AKilledSweepGoesOn) {
  const TinyRunFolder folder("sweep-killed");
  const std::string command = "sweep clm.yaml " + kSpace + " --processes 2 --output ";
  const std::string whole = folder.output(command + "whole");
  for (const int signal : {SIGTERM, SIGKILL}) {
    const std::string name = concat("killed-", signal);
    // The shell gives way to the program, so that the signal reaches it.
    const pid_t child = fork();
    if (child == 0) {
      const std::string shell = concat("cd '", folder.path(""), "' && exec '", tapestry_binary(),
                                       "' ", command, name, " 2>", name, ".err");
      execl("/bin/sh", "sh", "-c", shell.c_str(), nullptr);
      _exit(99);
    }
    const std::string results = folder.path(name + "/sweep.json");
    const auto has_results = [&] {
      return std::filesystem::exists(results) &&
             read_file(results).find("\"done\"") != std::string::npos;
    };
    for (int i = 0; i < 3000 && !has_results(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(has_results());
    kill(child, signal);
    EXPECT_EQ(TinyRunFolder::wait(child), signal == SIGTERM ? 143 : 1000 + SIGKILL);
    const TinyRunFolder::Outcome rest = folder.run(command + name);
    EXPECT_EQ(rest.code, 0) << rest.err;
    EXPECT_EQ(rest.out, whole);
    EXPECT_THAT(rest.err, HasSubstr("goes on after"));
    const std::string best = best_trial(whole);
    expect_equal(folder.result(name + '/' + best), folder.result("whole/" + best));
    // Once it is over there is nothing to train.
    EXPECT_EQ(folder.output(command + name), whole);
  }
}

TEST(SweepCommandTest, SeedsGiveAMeanAndAnInterval) {
  const TinyRunFolder folder("sweep-seeds");
  const std::string table = folder.output(
      "sweep regression.yaml training.max_steps=20 training.learning_rate=1e-3,1e-1 --seeds 3 "
      "--output swept");
  EXPECT_THAT(lines_of(table).at(0), HasSubstr("+/- 95 %"));
  EXPECT_EQ(lines_of(table).size(), 3);
  for (const char* const seed : {"1", "2", "3"}) {
    const std::string yaml =
        read_file(folder.path(concat("swept/trial-002-seed-", seed, "/config.yaml")));
    EXPECT_THAT(yaml, HasSubstr(concat("seed: ", seed, '\n')));
  }
}

TEST(SweepCommandTest, ATrialThatDivergesIsTheLast) {
  const TinyRunFolder folder("sweep-diverged");
  const std::string table = folder.output(
      "sweep clm.yaml training.max_steps=40 training.learning_rate=1e30,1e-2 "
      "training.divergence_patience=5 training.max_grad_norm=0 --output swept");
  EXPECT_THAT(lines_of(table).at(1), HasSubstr("002"));
  EXPECT_THAT(lines_of(table).at(2), HasSubstr("diverged"));
}

TEST(SweepCommandTest, NonsenseIsAnErrorBeforeAnythingRuns) {
  const TinyRunFolder folder("sweep-nonsense");
  const auto complaint = [&](const std::string& arguments) {
    const TinyRunFolder::Outcome outcome = folder.run("sweep clm.yaml --output swept " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder.path("swept")));
    return outcome.err;
  };
  EXPECT_THAT(complaint("training.learning_rat=1e-4..1e-2:log --trials 2"),
              HasSubstr("did you mean 'learning_rate'?"));
  EXPECT_THAT(complaint("training.learning_rate=3..1 --trials 2"), HasSubstr("LOW < HIGH"));
  EXPECT_THAT(complaint("model.dropout=0.1,2"), HasSubstr("model.dropout=2"));
  EXPECT_THAT(complaint("--halving"), HasSubstr("at least 2 trials, got 1"));
  EXPECT_THAT(complaint("output_dir=a,b"), HasSubstr("'output_dir' cannot vary"));
  EXPECT_THAT(complaint("seed=1,2 --seeds 2"), HasSubstr("'seed' cannot vary"));
  EXPECT_THAT(complaint("data.valid={}"), HasSubstr("data.valid"));
}

TEST(SweepCommandTest, AnotherSweepInTheFolderIsRefused) {
  const TinyRunFolder folder("sweep-other");
  const std::string command = "sweep regression.yaml training.max_steps=10 --output swept ";
  folder.output(command + "training.learning_rate=1e-3,1e-2");
  const TinyRunFolder::Outcome other = folder.run(command + "training.learning_rate=1e-3,2e-2");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("trials/1/0 was \"training.learning_rate=1e-2\" and is "
                                   "\"training.learning_rate=2e-2\""));
  std::filesystem::remove(folder.path("swept/sweep.json"));
  EXPECT_THAT(folder.run(command + "training.learning_rate=1e-3,1e-2").err,
              HasSubstr("with trial-00"));
}

}  // namespace
}  // namespace tapestry
