// What a training does to files and folders that are not its own, and to those of a run that it
// refuses to go on with.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class UserFilesTest : public testing::Test {
 protected:
  int train(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    folder_.forget_messages();
    return folder_.train("prompts", run, overrides);
  }
  std::string read(const std::string& name) const { return read_file(folder_.path(name)); }

  TinyRunFolder folder_{"user-files"};
  const std::vector<std::string> few_ = {"training.max_steps=4", "training.save_steps=2"};
};

// A run cuts its own lines of an earlier start: data of such a name would be emptied.
TEST_F(UserFilesTest, DataWithTheNameOfARunsFileIsRefused) {
  fs::create_directory(folder_.path("mine"));
  for (const char* name : {"samples.jsonl", "metrics.jsonl", "flight.jsonl"}) {
    const std::string data = read("train.jsonl");
    folder_.write(concat("mine/", name), data);
    EXPECT_EQ(train("mine", {concat("data.train.jsonl=mine/", name)}), 2);
    EXPECT_THAT(folder_.messages(), HasSubstr("mine/"));
    EXPECT_THAT(folder_.messages(), HasSubstr("is data, and a run writes a file of that name"));
    EXPECT_EQ(read(concat("mine/", name)), data);
    fs::remove(folder_.path(concat("mine/", name)));
  }
}

TEST_F(UserFilesTest, AConfigInTheFolderIsNotReplaced) {
  fs::create_directory(folder_.path("mine"));
  const std::string text = "# mine\n" + read("prompts.yaml");
  folder_.write("mine/config.yaml", text);
  EXPECT_EQ(train("mine", few_), 2);
  EXPECT_THAT(folder_.messages(), HasSubstr("config.yaml is of no run"));
  EXPECT_EQ(read("mine/config.yaml"), text);
  // That of a run is the run's, whatever it has begun.
  ASSERT_EQ(train("run", few_), 0) << folder_.messages();
  EXPECT_EQ(train("run", few_), 0) << folder_.messages();
}

// A format on the command line takes the place of the file's, with its split: that is said.
TEST_F(UserFilesTest, FilesThatAreLearntAndMeasuredAreTold) {
  const auto told = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = few_;
    all.insert(all.end(), overrides.begin(), overrides.end());
    EXPECT_EQ(train("run", all), 0) << folder_.messages();
    fs::remove_all(folder_.path("run"));
    return folder_.messages().find("train.jsonl, as data.train does: its figures") <
           folder_.messages().size();
  };
  EXPECT_FALSE(told({}));
  EXPECT_TRUE(told({"data.valid.jsonl=train.jsonl"}));
  EXPECT_TRUE(told({"data.valid.jsonl=train.jsonl", "data.valid.limit=5"}));
}

// A run inside a checkpoint would be hidden by it.
TEST_F(UserFilesTest, ACheckpointIsNoRunFolder) {
  ASSERT_EQ(train("run", few_), 0) << folder_.messages();
  for (const char* name : {"run/best", "run/checkpoint-4"}) {
    EXPECT_EQ(train(name, few_), 2);
    EXPECT_THAT(folder_.messages(), HasSubstr(" is a checkpoint; choose another output_dir."));
  }
}

TEST_F(UserFilesTest, ARefusedResumeLeavesTheConfig) {
  ASSERT_EQ(train("run", few_), 0) << folder_.messages();
  const std::string config = read("run/config.yaml");
  std::vector<std::string> other = few_;
  other.emplace_back("model.hidden_size=32");
  EXPECT_NE(train("run", other), 0);
  EXPECT_EQ(read("run/config.yaml"), config);
  other = {"training.max_steps=6"};
  EXPECT_EQ(train("run", other), 0) << folder_.messages();
  EXPECT_THAT(read("run/config.yaml"), HasSubstr("max_steps: 6"));
}

// As `cp -rL`, `scp -r` and zip leave it.
TEST_F(UserFilesTest, ACopyWithoutLinksGoesOn) {
  ASSERT_EQ(train("run", few_), 0) << folder_.messages();
  for (const char* link : {"best", "last"}) {
    const fs::path target = fs::canonical(folder_.path(concat("run/", link)));
    fs::remove(folder_.path(concat("run/", link)));
    fs::copy(target, folder_.path(concat("run/", link)), fs::copy_options::recursive);
  }
  ASSERT_EQ(train("run", {"training.max_steps=6", "training.save_steps=2"}), 0)
      << folder_.messages();
  EXPECT_TRUE(fs::is_symlink(folder_.path("run/last")));
  EXPECT_EQ(fs::read_symlink(folder_.path("run/last")), "checkpoint-6");
}

TEST_F(UserFilesTest, AFolderInTheLinksPlaceIsRefusedAtOnce) {
  ASSERT_EQ(train("run", few_), 0) << folder_.messages();
  fs::create_directory(folder_.path("new"));
  fs::copy(fs::canonical(folder_.path("run/best")), folder_.path("new/best"));
  EXPECT_EQ(train("new", few_), 2);
  EXPECT_THAT(folder_.messages(), HasSubstr("new/best is a folder where a link belongs"));
  EXPECT_TRUE(fs::exists(folder_.path("new/best/model.safetensors")));
}

// Nothing is left to compute, and the folder would have no model.
TEST_F(UserFilesTest, AFinishedRunDoesNotGoOnElsewhere) {
  ASSERT_EQ(train("run", few_), 0) << folder_.messages();
  std::vector<std::string> elsewhere = few_;
  elsewhere.insert(elsewhere.end(), {"--resume", "run"});
  EXPECT_EQ(train("other", elsewhere), 2);
  EXPECT_THAT(
      folder_.messages(),
      HasSubstr("run has 4 updates, and training.max_steps is 4: nothing would be trained"));
  elsewhere[0] = "training.max_steps=6";
  EXPECT_EQ(train("other", elsewhere), 0) << folder_.messages();
}

}  // namespace
}  // namespace tapestry
