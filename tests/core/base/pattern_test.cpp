#include "core/base/pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace tapestry {
namespace {

TEST(Pattern, StarsStandForAnyCharacters) {
  EXPECT_TRUE(matches("layers.0.qkv", "layers.0.qkv"));
  EXPECT_TRUE(matches("layers.0.qkv", "*.qkv"));
  EXPECT_TRUE(matches("layers.0.qkv", "layers.*.q*"));
  EXPECT_TRUE(matches("layers.0.qkv", "*"));
  EXPECT_TRUE(matches("abab", "*ab"));  // the first "ab" is not the last
  EXPECT_TRUE(matches("a", "a**"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("", "*"));
  EXPECT_FALSE(matches("layers.0.qkv", "layers.0"));
  EXPECT_FALSE(matches("layers.0", "layers.0.qkv"));
  EXPECT_FALSE(matches("layers.0.qkv", "*.q"));
  EXPECT_FALSE(matches("", "a*"));
}

// Going back to every star would take 2^30 steps here.
TEST(Pattern, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 30; ++i) pattern += "*a";
  std::string text(200, 'a');
  text += 'b';
  EXPECT_FALSE(matches(text, pattern));
}

}  // namespace
}  // namespace tapestry
