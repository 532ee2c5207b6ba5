#include "data/files/files.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "data/files/unpacked_file.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

TEST(WholeFiles, AreReadAsTheyWereWritten) {
  TempFolder folder;
  std::string bytes;
  for (uint32_t i = 0; i < 300000; ++i) bytes += static_cast<char>(i * 7919 >> 3);
  for (const std::string& content : {std::string(), std::string("a\0\r\n", 4), bytes}) {
    write_file(folder.path("file"), content);
    EXPECT_EQ(read_file(folder.path("file")), content);
  }
  const std::string packed = gzip("text");
  EXPECT_EQ(read_file(folder.write("packed", packed)), packed);
}

TEST(WholeFiles, ThatCannotBeReadAreErrors) {
  TempFolder folder;
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_file(folder.path("none")); }),
              HasSubstr("none cannot be opened: No such file or directory."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_file(folder.path("")); }),
              HasSubstr("is a directory, expected a file."));
}

// A pipe without a writer would never open, a device never end.
TEST(WholeFiles, AreNeitherPipesNorDevices) {
  TempFolder folder;
  const std::string pipe = folder.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read_file(pipe); }),
              HasSubstr("pipe is a pipe, expected a file."));
  const auto unpacked = [](const std::string& path) { return read_unpacked(path); };
  for (const std::function<std::string(const std::string&)>& read :
       {std::function(read_file), std::function<std::string(const std::string&)>(unpacked)}) {
    EXPECT_THAT(error_of(ErrorKind::kData, [&] { read("/dev/zero"); }),
                HasSubstr("/dev/zero is a device, expected a file."));
    EXPECT_EQ(read("/dev/null"), "");
  }
}

TEST(WholeFiles, ThatCannotBeWrittenAreErrors) {
  TempFolder folder;
  EXPECT_EQ(error_of(ErrorKind::kRuntime, [&] { write_file(folder.path("no/file"), "a"); }),
            "[file] cannot write " + folder.path("no/file") + ".");
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(error_of(ErrorKind::kRuntime, [&] { write_file("/dev/full", "a"); }),
            "[file] cannot write /dev/full.");
}

}  // namespace
}  // namespace tapestry
