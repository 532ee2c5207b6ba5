#include "data/files/file_pattern.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class FilePatternTest : public testing::Test {
 protected:
  std::vector<std::string> matches(const std::string& pattern) const {
    const std::string root = folder_.path("");
    std::vector<std::string> names = matching_files(root + pattern);
    for (std::string& name : names) {
      EXPECT_TRUE(name.starts_with(root)) << name;
      name.erase(0, root.size());
    }
    return names;
  }
  void folder(const std::string& name) const {
    std::filesystem::create_directories(folder_.path(name));
  }

  TempFolder folder_;
};

TEST_F(FilePatternTest, MatchesAreSortedByTheirBytes) {
  for (const char* name : {"b-10", "b-9", "a-1", "B-1", ".b-0", "b-1.zst"}) folder_.write(name, "");
  folder("b-2");
  EXPECT_THAT(matches("b-*"), ElementsAre("b-1.zst", "b-10", "b-9"));
  EXPECT_THAT(matches("?-1"), ElementsAre("B-1", "a-1"));
  EXPECT_THAT(matches("[ab]-?"), ElementsAre("a-1", "b-9"));
  EXPECT_THAT(matches("*"), ElementsAre("B-1", "a-1", "b-1.zst", "b-10", "b-9"));
  EXPECT_THAT(matches(".b*"), ElementsAre(".b-0"));
  EXPECT_THAT(matches("c*"), IsEmpty());
  EXPECT_THAT(matches("c/*"), IsEmpty());
  EXPECT_THAT(matches("c"), ElementsAre("c"));
}

TEST_F(FilePatternTest, FoldersMayBePatterns) {
  for (const char* name : {"en/1", "de/2", "de/3"}) folder(name);
  for (const char* name : {"en/1/x.txt", "de/2/x.txt", "de/3/x.txt"}) folder_.write(name, "");
  EXPECT_THAT(matches("*/*/x.txt"), ElementsAre("de/2/x.txt", "de/3/x.txt", "en/1/x.txt"));
  EXPECT_THAT(matches("d?/[3]/*"), ElementsAre("de/3/x.txt"));
}

TEST_F(FilePatternTest, AnExistingNameIsMeantLiterally) {
  folder("[ab]");
  for (const char* name : {"x1", "x*", "[ab]/y1", "[ab]/y2"}) folder_.write(name, "");
  EXPECT_THAT(matches("x*"), ElementsAre("x*"));
  EXPECT_THAT(matches("[ab]/y?"), ElementsAre("[ab]/y1", "[ab]/y2"));
  EXPECT_FALSE(is_file_pattern(folder_.path("x*")));
  EXPECT_TRUE(is_file_pattern(folder_.path("x?")));
}

TEST_F(FilePatternTest, ALinkThatLeadsNowhereIsAMatch) {
  std::filesystem::create_symlink("nowhere", folder_.path("z1"));
  EXPECT_THAT(matches("z*"), ElementsAre("z1"));
}

}  // namespace
}  // namespace tapestry
