// A checkpoint's files: written as a stream, and verified one by one.
#include "apps/checkpoint/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/files/files.h"
#include "tests/apps/checkpoint_bytes.h"

namespace tapestry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    write_checkpoint(folder_, {{"model.safetensors", std::string(3000, 'm')},
                               {"optimizer.safetensors", std::string(9000, 'o')},
                               {"config.json", "{}"}});
  }
  ~FilesTest() override { fs::remove_all(folder_); }

  void overwrite(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  static std::string error_of(Checkpoint& checkpoint, const std::string& name) {
    try {
      checkpoint.open(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "no error";
  }

  const std::string folder_ =
      (fs::temp_directory_path() /
       concat("tapestry-files-", getpid(), "-",
              testing::UnitTest::GetInstance()->current_test_info()->name()))
          .string();
};

TEST_F(FilesTest, AStreamIsWrittenAsItsBytesAre) {
  const auto manifest = [&] { return read_file(folder_ + "/MANIFEST.json"); };
  const std::string bytes(5 * kPartBytes / 2, 'x');
  write_checkpoint(folder_, {{"a", bytes}, {"b", ""}});
  const std::string expected = manifest();
  write_checkpoint(folder_, {{"a",
                              [&](const ByteSink& sink) {
                                sink(bytes.data(), 1);
                                sink(bytes.data(), 0);
                                sink(bytes.data() + 1, bytes.size() - 1);
                              }},
                             {"b", [](const ByteSink&) {}}});
  EXPECT_EQ(manifest(), expected);
  EXPECT_TRUE(read_checkpoint(folder_).at("a") == bytes);
}

TEST_F(FilesTest, AStreamThatFailsLeavesTheOldCheckpoint) {
  const auto failing = [](const ByteSink& sink) {
    sink("half", 4);
    fail(ErrorKind::kData, "[test] no more.");
  };
  EXPECT_THROW(write_checkpoint(folder_, {{"config.json", "new"}, {"z", failing}}), Error);
  EXPECT_EQ(read_checkpoint(folder_).at("config.json"), "{}");
  EXPECT_FALSE(fs::exists(concat(folder_, ".tmp-", getpid())));
}

TEST_F(FilesTest, OnlyWhatIsAskedForIsVerified) {
  overwrite("optimizer.safetensors", std::string(9000, '?'));
  Checkpoint checkpoint(folder_);
  EXPECT_EQ(checkpoint.read("config.json"), "{}");
  EXPECT_EQ(checkpoint.read("model.safetensors"), std::string(3000, 'm'));
  EXPECT_THAT(error_of(checkpoint, "optimizer.safetensors"),
              HasSubstr("optimizer.safetensors is damaged: its checksum is "));
  EXPECT_THROW(checkpoint.open_all(), Error);
  overwrite("optimizer.safetensors", "short");
  EXPECT_THAT(error_of(checkpoint, "optimizer.safetensors"),
              HasSubstr("optimizer.safetensors has 5 bytes, its manifest says 9000."));
  fs::remove(folder_ + "/optimizer.safetensors");
  EXPECT_THAT(error_of(checkpoint, "optimizer.safetensors"), HasSubstr(" cannot be opened: "));
  fs::create_directory(folder_ + "/optimizer.safetensors");
  EXPECT_THAT(error_of(checkpoint, "optimizer.safetensors"),
              HasSubstr(" is a directory, expected a file."));
  EXPECT_EQ(error_of(checkpoint, "other"), "[checkpoint] " + folder_ + " has no other.");
}

// A last bit in the second part of a file counts as much as one in the first.
TEST_F(FilesTest, EveryPartIsVerified) {
  std::string bytes(2 * kPartBytes + 10, 'x');
  write_checkpoint(folder_, {{"a", bytes}});
  EXPECT_NO_THROW(Checkpoint(folder_).open_all());
  bytes.back() ^= 1;
  overwrite("a", bytes);
  EXPECT_THROW(Checkpoint(folder_).open_all(), Error);
}

TEST_F(FilesTest, AnOpenFileOutlivesItsFolder) {
  ByteSource model;
  {
    Checkpoint checkpoint(folder_);
    model = checkpoint.open("model.safetensors");
  }
  fs::remove_all(folder_);
  EXPECT_EQ(bytes_of(model), std::string(3000, 'm'));
}

}  // namespace
}  // namespace tapestry
