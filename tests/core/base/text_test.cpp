#include "core/base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace tapestry {
namespace {

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(join(std::vector<std::string>{"one"}, ", "), "one");
  EXPECT_EQ(join(std::vector<std::string>{"", "one", ""}, ", "), ", one, ");
  EXPECT_EQ(join(std::vector{1, 2, 3}, " or "), "1 or 2 or 3");
}

}  // namespace
}  // namespace tapestry
