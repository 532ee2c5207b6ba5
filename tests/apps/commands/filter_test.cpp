// Commands that answer standard input line by line.
#include <gmock/gmock.h>

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

TEST_F(FilterTest, LinesBeforeABadOneAreAnswered) {
  ASSERT_EQ(folder_.train("translation", "run", {"training.max_steps=5"}), 0) << folder_.messages();
  const auto outcome = folder_.run("translate --model run", "ba ce\ndi fo\n\xFF\nba\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("[translate] line 3 is not UTF-8 at byte 1."));
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
}

}  // namespace
}  // namespace tapestry
