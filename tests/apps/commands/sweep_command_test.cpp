// tapestry sweep: its table, its trials as ordinary runs, and its way to go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "apps/checkpoint/folder_lock.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kSpace =
    "training.learning_rate=1e-3..5e-2:log model.dropout=0,0.2 training.max_steps=40 "
    "training.eval_steps=10 --trials 4 --halving";

// Starts a command of plain words; what it says is in NAME.out and NAME.err. No shell is between:
// it would change how signals are handled. A program that hangs is ended after two minutes.
pid_t start(
    const TinyRunFolder& folder, const std::string& command, const std::string& name,
    void (*prepare)() = [] {}) {
  std::vector<std::string> words = {tapestry_binary()};
  std::istringstream in(command);
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const auto opened = [&](const char* ending) {
      return open(folder.path(name + ending).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    };
    const bool ready = chdir(folder.path("").c_str()) == 0 &&
                       dup2(opened(".out"), STDOUT_FILENO) >= 0 &&
                       dup2(opened(".err"), STDERR_FILENO) >= 0;
    alarm(120);
    prepare();
    if (ready) execv(argv[0], argv.data());
    _exit(99);
  }
  return child;
}

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

// Kills the processes of a trial as a system does that has no memory left, `times` at most. Returns
// how many it killed until the sweep ended, for which the caller waits.
size_t kill_trial(pid_t sweep, const std::string& trial, size_t times) {
  std::set<pid_t> killed;
  const auto has_ended = [&] {
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(sweep), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == sweep;
  };
  while (!has_ended()) {
    std::ifstream children(concat("/proc/", sweep, "/task/", sweep, "/children"));
    for (pid_t child = 0; killed.size() < times && children >> child;) {
      std::ifstream in(concat("/proc/", child, "/cmdline"));
      const std::string line(std::istreambuf_iterator<char>(in), {});
      const bool is_trial = line.starts_with("tapestry") && line.find(trial) != std::string::npos;
      if (is_trial && killed.insert(child).second) kill(child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return killed.size();
}

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
    const pid_t child = start(folder, command + name, name);
    const std::string results = folder.path(name + "/sweep.json");
    const auto has_results = [&] {
      return std::filesystem::exists(results) &&
             read_file(results).find("\"done\"") != std::string::npos;
    };
    ASSERT_TRUE(comes_true(has_results));
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

// A parent's way to never wait for its children, which its own inherit.
TEST(SweepCommandTest, ChildrenAreWaitedForWhereSigchldIsIgnored) {
  const TinyRunFolder folder("sweep-sigchld");
  const pid_t child = start(folder,
                            "sweep regression.yaml training.max_steps=10 "
                            "training.learning_rate=1e-3,1e-2 --output swept",
                            "said", [] { std::signal(SIGCHLD, SIG_IGN); });
  EXPECT_EQ(TinyRunFolder::wait(child), 0) << read_file(folder.path("said.err"));
}

TEST(SweepCommandTest, AWaitForTheFolderCanBeStopped) {
  const TinyRunFolder folder("sweep-waits");
  std::filesystem::create_directories(folder.path("swept"));
  const FolderLock lock(folder.path("swept"), "test", FolderLock::Children::kDoNot);
  ASSERT_TRUE(lock.take());
  const pid_t child = start(
      folder, "sweep regression.yaml training.learning_rate=1e-3,1e-2 --output swept", "said");
  EXPECT_TRUE(comes_true([&] {
    const std::string said = folder.path("said.err");
    return std::filesystem::exists(said) &&
           read_file(said).find("waits for trials") != std::string::npos;
  }));
  kill(child, SIGINT);
  EXPECT_EQ(TinyRunFolder::wait(child), 130);
  EXPECT_THAT(read_file(folder.path("said.err")), HasSubstr("stopped by SIGINT"));
}

// However many run at a time: one that was killed is tried once more, by itself.
TEST(SweepCommandTest, AKilledTrialIsTriedOnceMore) {
  const TinyRunFolder folder("sweep-kills");
  const std::string command =
      "sweep clm.yaml training.max_steps=40 training.learning_rate=1e-2,1e-3 --output ";
  const std::string whole = folder.output(command + "whole");
  for (const char* const processes : {"1", "2"}) {
    for (const size_t times : {1, 2}) {
      SCOPED_TRACE(concat(times, " times, processes ", processes));
      const std::string name = concat("killed-", times, '-', processes);
      const pid_t sweep = start(folder, concat(command, name, " --processes ", processes), name);
      EXPECT_EQ(kill_trial(sweep, "trial-002", times), times);
      EXPECT_EQ(TinyRunFolder::wait(sweep), 0);
      const std::string table = read_file(folder.path(name + ".out"));
      EXPECT_THAT(
          read_file(folder.path(name + ".err")),
          HasSubstr("trial-002 was killed, maybe for want of memory; it is tried once more"));
      if (times == 1) {
        EXPECT_EQ(table, whole);
      } else {
        EXPECT_THAT(lines_of(table).at(2), AllOf(HasSubstr("002"), HasSubstr("killed")));
      }
    }
  }
}

TEST(SweepCommandTest, ATrialWithoutItsMemoryIsJudgedByItself) {
  const TinyRunFolder folder("sweep-memory");
  const std::string command =
      "sweep clm.yaml training.max_steps=10 model.hidden_size=16,1048576 --output ";
  const TinyRunFolder::Outcome one = folder.run(command + "one");
  const TinyRunFolder::Outcome two = folder.run(command + "two --processes 2");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, two.out);
  EXPECT_THAT(lines_of(one.out).at(2), HasSubstr("out of memory"));
  EXPECT_THAT(two.err, HasSubstr("trial-002 ran out of memory beside other trials; it is tried "
                                 "once more, by itself"));
}

TEST(SweepCommandTest, AFailedTrialSaysHowItEnded) {
  const TinyRunFolder folder("sweep-failed");
  folder.write("empty.src", "");
  const TinyRunFolder::Outcome outcome =
      folder.run("sweep clm.yaml data.train.text=train.src,empty.src --output swept");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("trial-002 ended with exit code 3: error: [data]"));
}

TEST(SweepCommandTest, AnOrdinaryRunIsLeftAsItIs) {
  const TinyRunFolder folder("sweep-run");
  ASSERT_EQ(folder.train("regression", "run", {"training.max_steps=10"}), 0);
  const auto names = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("run"))) {
      const std::string path = entry.path().string();
      files[path] = entry.is_regular_file() ? read_file(path) : "";
    }
    return files;
  };
  const auto before = names();
  const TinyRunFolder::Outcome outcome =
      folder.run("sweep regression.yaml training.learning_rate=1e-3,1e-2 --output run");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(lines_of(outcome.err).size(), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("run, the folder of a run; choose another --output"));
  EXPECT_EQ(names(), before);
  EXPECT_THAT(folder.run("sweep regression.yaml --output train.csv").err,
              HasSubstr("train.csv, a file; choose another --output"));
}

// What a trial is started with follows from its own values, whatever those of the first one are.
TEST(SweepCommandTest, EachTrialHasItsOwnThreadsAndCache) {
  const TinyRunFolder folder("sweep-own");
  folder.output(
      "sweep clm.yaml training.max_steps=5 training.eval_steps=5 threads=0,2 data.cache=true,false "
      "output_dir=fixed --processes 2 --output swept");
  EXPECT_FALSE(std::filesystem::exists(folder.path("fixed")));
  EXPECT_TRUE(std::filesystem::exists(folder.path("swept/cache")));
  const auto config = [&](const std::string& trial) {
    return read_file(folder.path("swept/" + trial + "/config.yaml"));
  };
  EXPECT_THAT(config("trial-003"), HasSubstr("threads: 2\n"));
  EXPECT_THAT(config("trial-003"), HasSubstr("swept/cache"));
  EXPECT_THAT(config("trial-004"), Not(HasSubstr("swept/cache")));
}

TEST(SweepCommandTest, ItGoesOnWithOtherThreadsCacheAndSaves) {
  const TinyRunFolder folder("sweep-machine");
  const std::string command =
      "sweep clm.yaml training.max_steps=10 training.learning_rate=1e-2,1e-3 --output swept ";
  const std::string table = folder.output(command + "output_dir=here");
  const TinyRunFolder::Outcome again =
      folder.run(command + "threads=2 data.cache=false training.save_steps=3 output_dir=there");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, table);
  EXPECT_EQ(folder.run(command + "training.warmup_steps=3").code, 2);
}

TEST(SweepCommandTest, ItsPlanAndItsBestCommandAreExact) {
  const TinyRunFolder folder("sweep-says");
  const TinyRunFolder::Outcome outcome = folder.run(
      "sweep clm.yaml 'training.optimizer={name: adam, betas: [0.9, 0.98]}' "
      "training.max_steps=40,80 training.eval_steps=10 --halving --output swept");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("2 trials, 2 until update 20 to 40, then 1 until update 40 to "
                                     "80; at most 100 updates"));
  EXPECT_THAT(outcome.err, HasSubstr("best: tapestry train clm.yaml "
                                     "'training.optimizer={name: adam, betas: [0.9, 0.98]}' "));
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
  EXPECT_THAT(folder.run("sweep clm.yaml --output ''").err, HasSubstr("a folder as --output"));
  EXPECT_THAT(complaint("data.valid={}"), HasSubstr("data.valid"));
  EXPECT_THAT(complaint("data.train.text=train.src,no.src"), HasSubstr("no.src"));
}

// A trial reads the config when it starts.
TEST(SweepCommandTest, AConfigThatChangesMeanwhileStopsTheSweep) {
  const TinyRunFolder folder("sweep-edited");
  const std::string config = read_file(folder.path("clm.yaml"));
  const std::string command =
      "sweep clm.yaml training.max_steps=200 training.learning_rate=1e-2,2e-2 --output swept";
  const auto edit_while_it_runs = [&](const std::string& text) {
    const pid_t sweep = start(folder, command, "said");
    EXPECT_TRUE(comes_true(
        [&] { return std::filesystem::exists(folder.path("swept/trial-001/metrics.jsonl")); }));
    folder.write("clm.yaml", text);
    return TinyRunFolder::wait(sweep);
  };
  EXPECT_EQ(edit_while_it_runs(config + "  clip_value: 0.5\n"), 2);
  EXPECT_THAT(read_file(folder.path("said.err")),
              HasSubstr("clm.yaml was changed while the sweep ran"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("swept/trial-002")));
  std::filesystem::remove_all(folder.path("swept"));
  folder.write("clm.yaml", config);
  EXPECT_EQ(edit_while_it_runs(config + "# Only a remark.\n"), 0);
}

// Draws do not depend on how many there are.
TEST(SweepCommandTest, MoreTrialsTrainBehindThoseThatAreThere) {
  const TinyRunFolder folder("sweep-more");
  const std::string command =
      "sweep regression.yaml training.max_steps=10 training.eval_steps=5 "
      "training.learning_rate=1e-3..1e-1:log ";
  const auto result = [&](const std::string& output) {
    return nlohmann::json::parse(read_file(folder.path(output + "/sweep.json")));
  };
  folder.output(command + "--trials 2 --output swept");
  const auto first = std::filesystem::last_write_time(folder.path("swept/trial-001/metrics.jsonl"));
  const TinyRunFolder::Outcome more = folder.run(command + "--trials 4 --output swept");
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr("goes on after 2 results of an earlier start"));
  EXPECT_EQ(std::filesystem::last_write_time(folder.path("swept/trial-001/metrics.jsonl")), first);
  // As if all had been asked for at once.
  const std::string at_once = folder.output(command + "--trials 4 --output at-once");
  EXPECT_EQ(more.out, at_once);
  EXPECT_EQ(result("swept"), result("at-once"));
  // Fewer of them, others and another config are refused as before.
  for (const char* const other :
       {"--trials 3", "--trials 5 --seed 7", "--trials 5 training.clip_value=0.5"}) {
    const TinyRunFolder::Outcome refused = folder.run(concat(command, other, " --output swept"));
    EXPECT_EQ(refused.code, 2) << other;
    EXPECT_THAT(refused.err, HasSubstr("expected the sweep that began there")) << other;
  }
  // Halving chooses among all: its trials depend on their number.
  folder.output(command + "--trials 2 --halving --output halved");
  EXPECT_EQ(folder.run(command + "--trials 4 --halving --output halved").code, 2);
}

TEST(SweepCommandTest, AnotherSweepInTheFolderIsRefused) {
  const TinyRunFolder folder("sweep-other");
  const std::string command = "sweep regression.yaml training.max_steps=10 --output swept ";
  folder.output(command + "training.learning_rate=1e-3,1e-2");
  const TinyRunFolder::Outcome other = folder.run(command + "training.learning_rate=1e-3,2e-2");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("trials/1/0 was \"training.learning_rate=1e-2\" and is "
                                   "\"training.learning_rate=2e-2\""));
  for (const char* const damage : {"{", "[]", R"({"sweep": [], "results": []})"}) {
    folder.write("swept/sweep.json", damage);
    EXPECT_THAT(folder.run(command + "training.learning_rate=1e-3,1e-2").err,
                HasSubstr("swept/sweep.json"));
  }
  std::filesystem::remove(folder.path("swept/sweep.json"));
  EXPECT_THAT(folder.run(command + "training.learning_rate=1e-3,1e-2").err,
              HasSubstr("expected a new folder or one with sweep.json"));
}

}  // namespace
}  // namespace tapestry
