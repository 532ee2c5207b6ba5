// The commit protocol: whatever happens, the newest complete checkpoint can be loaded.
#include "apps/checkpoint/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "data/files/files.h"
#include "tests/apps/checkpoint_bytes.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / concat("tapestry-run-folder-", getpid(), "-", name);
    fs::remove_all(folder_);
    run_ = (folder_ / "run").string();
  }
  void TearDown() override {
    internal::checkpoint_stage_hook = nullptr;
    fs::remove_all(folder_);
  }

  static CheckpointFiles files(int64_t step) {
    return {{"model.safetensors", std::string(1000, static_cast<char>('a' + step))},
            {"trainer_state.json", concat("{\"step\": ", step, "}")},
            {"empty.txt", ""}};
  }
  static CheckpointContent content(int64_t step) {
    const CheckpointFiles bytes = files(step);
    return {bytes.begin(), bytes.end()};
  }
  static int64_t step_of(const Checkpoint& checkpoint) {
    return std::stoll(checkpoint.folder().substr(checkpoint.folder().rfind('-') + 1));
  }

  std::string linked(const std::string& link) const {
    return fs::read_symlink(fs::path(run_) / link).string();
  }

  /// Names in the run folder besides the lock.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_)) {
      if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void overwrite(const std::string& file, const std::string& bytes) const {
    std::ofstream(fs::path(run_) / file, std::ios::binary) << bytes;
  }

  static void no_report(const std::string& text) { ADD_FAILURE() << text; }

  fs::path folder_;
  std::string run_;
};

TEST_F(RunFolderTest, CommitsAndLoads) {
  RunFolder run(run_);
  EXPECT_FALSE(run.newest(no_report).has_value());
  run.commit(10, content(1), /*best=*/true, 0);
  run.commit(20, content(2), /*best=*/false, 0);
  EXPECT_EQ(linked("best"), "checkpoint-10");
  EXPECT_EQ(linked("last"), "checkpoint-20");
  const auto loaded = run.newest(no_report);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(step_of(*loaded), 20);
  EXPECT_EQ(files_of(*loaded), files(2));
  EXPECT_EQ(read_checkpoint(run_ + "/best"), files(1));
  EXPECT_THAT(names(), ElementsAre("best", "checkpoint-10", "checkpoint-20", "last"));
}

TEST_F(RunFolderTest, KeepsBestAndLastWhenItDeletesTheOldest) {
  RunFolder run(run_);
  run.commit(1, content(1), true, 2);
  for (int64_t step = 2; step <= 9; ++step) run.commit(step, content(step), false, 2);
  EXPECT_THAT(run.steps(), ElementsAre(1, 9));
  run.commit(10, content(10), true, 2);
  EXPECT_THAT(run.steps(), ElementsAre(9, 10));
  run.commit(11, content(11), true, 1);
  EXPECT_THAT(run.steps(), ElementsAre(11));
}

TEST_F(RunFolderTest, TellsOnceWhatItCannotDelete) {
  RunFolder run(run_);
  run.commit(1, content(1), false, 1);
  // In the way of the new name, and not empty: the rename fails, whoever runs this.
  const fs::path in_the_way = concat(run.checkpoint_path(1), ".tmp-", getpid());
  fs::create_directories(in_the_way / "inside");
  std::vector<std::string> told;
  const auto report = [&](const std::string& problem) { told.push_back(problem); };
  run.commit(2, content(2), false, 1, report);
  run.commit(3, content(3), false, 1, report);
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr(run.checkpoint_path(1) + " cannot be deleted: "),
                                      HasSubstr("not empty"))));
  fs::remove_all(in_the_way);
  run.commit(4, content(4), false, 1, report);
  EXPECT_THAT(run.steps(), ElementsAre(4));
  EXPECT_EQ(told.size(), 1u);
}

TEST_F(RunFolderTest, ASmallFileIsReplacedAsAWholeOrNotAtAll) {
  const RunFolder run(run_);
  static std::vector<std::string> stages;
  stages.clear();
  internal::checkpoint_stage_hook = [](const char* stage) { stages.emplace_back(stage); };
  run.write("notes", "first");
  EXPECT_THAT(stages, ElementsAre("file written", "renamed", "folder flushed"));
  EXPECT_EQ(read_file(run.file("notes")), "first");
  fs::create_directories(fs::path(run_) / "folder" / "inside");
  EXPECT_THROW(run.write("folder", "text"), Error);
  EXPECT_THAT(names(), ElementsAre("folder", "notes"));
}

TEST_F(RunFolderTest, AFolderOfASweepIsRefused) {
  fs::create_directories(run_);
  overwrite("sweep.json", "{}");
  try {
    const RunFolder run(run_);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("is the folder of a sweep"));
  }
  EXPECT_THAT(names(), ElementsAre("sweep.json"));
}

TEST_F(RunFolderTest, StepsAreOrderedAsNumbers) {
  RunFolder run(run_);
  for (const int64_t step : {9, 10, 100}) run.commit(step, content(step), false, 0);
  EXPECT_THAT(run.steps(), ElementsAre(9, 10, 100));
  EXPECT_EQ(step_of(*run.newest(no_report)), 100);
}

TEST_F(RunFolderTest, FallsBackToAnOlderOneAndTellsWhy) {
  RunFolder run(run_);
  for (int64_t step = 1; step <= 5; ++step) run.commit(step, content(step), false, 0);
  overwrite("checkpoint-5/model.safetensors", std::string(1000, 'x'));
  overwrite("checkpoint-4/model.safetensors", "short");
  fs::remove(fs::path(run_) / "checkpoint-3/empty.txt");
  overwrite("checkpoint-2/MANIFEST.json", "{\"format\": \"tapestry checkpoint 1\", \"files\": 4}");
  std::vector<std::string> reports;
  const auto loaded = run.newest([&](const std::string& text) { reports.push_back(text); });
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(step_of(*loaded), 1);
  EXPECT_THAT(reports,
              ElementsAre(HasSubstr("model.safetensors is damaged: its checksum is "),
                          HasSubstr("model.safetensors has 5 bytes, its manifest says 1000."),
                          HasSubstr(run_ + "/checkpoint-3/empty.txt cannot be opened: "),
                          HasSubstr("MANIFEST.json is damaged: it is no list of files.")));
  for (const std::string& report : reports) {
    EXPECT_THAT(report, HasSubstr(" is passed over: "));
  }
}

TEST_F(RunFolderTest, DamagedManifestsAreErrorsOfData) {
  RunFolder run(run_);
  run.commit(1, content(1), false, 0);
  for (const char* manifest :
       {"", "{", "[]", "null", "{\"format\": \"other\", \"files\": {}}", "{\"files\": {}}",
        "{\"format\": \"tapestry checkpoint 1\", \"files\": null}",
        "{\"format\": \"tapestry checkpoint 1\", \"files\": {\"a\": 1}}",
        "{\"format\": \"tapestry checkpoint 1\", \"files\": {\"../.lock\": {\"bytes\": 0, "
        "\"xxh3_64\": \"2d06800538d394c2\"}}}"}) {
    overwrite("checkpoint-1/MANIFEST.json", manifest);
    try {
      read_checkpoint(run_ + "/checkpoint-1");
      ADD_FAILURE() << manifest;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_THAT(error.what(), HasSubstr("MANIFEST.json")) << manifest;
    }
  }
}

TEST_F(RunFolderTest, ChecksumIsXxh3) {
  // XXH3_64bits of no bytes, from the specification's reference implementation (xxhsum -H3).
  RunFolder run(run_);
  run.commit(1, {{"empty.txt", ""}}, false, 0);
  EXPECT_THAT(read_file(run_ + "/checkpoint-1/MANIFEST.json"), HasSubstr("2d06800538d394c2"));
}

TEST_F(RunFolderTest, SecondTrainingInTheSameFolderIsRefused) {
  RunFolder run(run_);
  try {
    RunFolder second(run_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_EQ(std::string(error.what()),
              "[run] another training is running in " + run_ + "; choose another output_dir.");
  }
}

TEST_F(RunFolderTest, LockEndsWithItsHolder) {
  { RunFolder run(run_); }
  EXPECT_NO_THROW(RunFolder again(run_));
}

TEST_F(RunFolderTest, RemovesLeftOversAndNothingElse) {
  {
    RunFolder run(run_);
    run.commit(3, content(3), false, 0);
  }
  fs::create_directories(fs::path(run_) / "checkpoint-4.tmp-123");
  overwrite("checkpoint-4.tmp-123/model.safetensors", "half");
  fs::create_symlink("checkpoint-3", fs::path(run_) / "last.tmp-123");
  overwrite("metrics.jsonl.tmp-123", "half");
  overwrite("notes.tmp-of-mine", "keep");
  RunFolder run(run_);
  EXPECT_THAT(names(), ElementsAre("checkpoint-3", "last", "notes.tmp-of-mine"));
}

TEST_F(RunFolderTest, ResolvesAModelFolder) {
  RunFolder run(run_);
  run.commit(3, content(3), true, 0);
  run.commit(4, content(4), false, 0);
  EXPECT_EQ(resolve_checkpoint(run_ + "/checkpoint-4"), run_ + "/checkpoint-4");
  EXPECT_EQ(resolve_checkpoint(run_), run_ + "/best");
  fs::remove(run_ + "/best");
  EXPECT_EQ(resolve_checkpoint(run_), run_ + "/last");
  fs::remove(run_ + "/last");
  EXPECT_EQ(resolve_checkpoint(run_), run_ + "/checkpoint-4");
  EXPECT_THROW(resolve_checkpoint((folder_ / "none").string()), Error);
  EXPECT_THROW(resolve_checkpoint(folder_.string()), Error);
}

int stages_left = 0;

/// Commits in a child process that ends without clean-up after `stages` stages. False when the
/// commit came to its end before.
bool commit_until(int stages, const std::string& run, int64_t step,
                  const CheckpointContent& content) {
  const pid_t child = fork();
  if (child == 0) {
    stages_left = stages;
    internal::checkpoint_stage_hook = [](const char*) {
      if (stages_left-- == 0) _exit(9);
    };
    RunFolder folder(run);
    folder.commit(step, content, /*best=*/true, /*keep=*/1);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 9;
}

TEST_F(RunFolderTest, DeathAtAnyStageLeavesALoadableState) {
  int stages = 0;
  for (bool died = true; died; ++stages) {
    fs::remove_all(run_);
    {
      RunFolder run(run_);
      run.commit(1, content(1), true, 0);
    }
    died = commit_until(stages, run_, 2, content(2));
    // Readers that take no lock come first, before anything is cleaned up.
    const CheckpointFiles read = read_checkpoint(resolve_checkpoint(run_));
    EXPECT_TRUE(read == files(1) || read == files(2)) << stages;
    RunFolder run(run_);
    const auto loaded = run.newest(no_report);
    ASSERT_TRUE(loaded.has_value()) << stages;
    EXPECT_EQ(files_of(*loaded), files(step_of(*loaded))) << stages;
    run.commit(2, content(2), true, 1);
    EXPECT_THAT(names(), ElementsAre("best", "checkpoint-2", "last")) << stages;
  }
  EXPECT_GE(stages, 12);
}

TEST_F(RunFolderTest, DeathWhileReplacingACheckpointLosesNothing) {
  for (int stages = 0, died = true; died; ++stages) {
    fs::remove_all(run_);
    {
      RunFolder run(run_);
      run.commit(2, content(1), true, 0);
    }
    died = commit_until(stages, run_, 2, content(2));
    RunFolder run(run_);
    const auto loaded = run.newest(no_report);
    ASSERT_TRUE(loaded.has_value()) << stages;
    EXPECT_TRUE(files_of(*loaded) == files(1) || files_of(*loaded) == files(2)) << stages;
    EXPECT_THAT(names(), ElementsAre("best", "checkpoint-2", "last")) << stages;
  }
}

TEST_F(RunFolderTest, FullDiskIsAClearErrorAndKeepsTheOldOnes) {
  { RunFolder run(run_); }
  const pid_t child = fork();
  if (child == 0) {
    // A limit on the size of files fails like a full disk: write() returns an error halfway.
    signal(SIGXFSZ, SIG_IGN);
    RunFolder run(run_);
    run.commit(1, content(1), true, 0);
    const rlimit limit = {500, 500};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      run.commit(2, content(2), true, 1);
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool clear = text.find("[checkpoint] cannot write ") == 0 &&
                         text.find("model.safetensors: File too large.") != std::string::npos;
      _exit(error.kind() == ErrorKind::kRuntime && clear ? 0 : 1);
    }
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(names(), ElementsAre("best", "checkpoint-1", "last"));
  RunFolder run(run_);
  EXPECT_EQ(files_of(*run.newest(no_report)), files(1));
}

TEST_F(RunFolderTest, WritesAStandAloneFolder) {
  const std::string folder = (folder_ / "deep" / "average").string();
  write_checkpoint(folder, content(1));
  EXPECT_EQ(read_checkpoint(folder), files(1));
  write_checkpoint(folder, content(2));
  EXPECT_EQ(read_checkpoint(folder), files(2));
}

}  // namespace
}  // namespace tapestry
