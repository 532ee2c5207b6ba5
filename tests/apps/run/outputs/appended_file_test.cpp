#include "apps/run/outputs/appended_file.h"

#include <sys/stat.h>

#include "data/files/files.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

TEST(AppendedFile, GoesOnBehindWhatIsThere) {
  const TempFolder folder;
  const std::string path = folder.write("log", "a\n");
  AppendedFile(path).append("b\n");
  EXPECT_EQ(read_file(path), "a\nb\n");
}

// Who shares a folder could else make a training wait for ever, or write elsewhere.
TEST(AppendedFile, IsAnOrdinaryFile) {
  const TempFolder folder;
  const std::string pipe = folder.path("pipe"), link = folder.path("link");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(symlink("elsewhere", link.c_str()), 0);
  EXPECT_EQ(error_of(ErrorKind::kRuntime, [&] { AppendedFile file(pipe); }),
            "[log] cannot write " + pipe + ": it is no ordinary file.");
  EXPECT_EQ(error_of(ErrorKind::kRuntime, [&] { AppendedFile file(link); }),
            "[log] cannot write " + link + ": it is a link.");
}

}  // namespace
}  // namespace tapestry
