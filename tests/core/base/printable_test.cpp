#include "core/base/printable.h"

#include <gtest/gtest.h>

namespace tapestry {
namespace {

TEST(Printable, TextMovesNoCursor) {
  EXPECT_EQ(printable("a\x1b[31m\tb\n\x7f"), "a\\x1b[31m\tb\n\\x7f");
}

TEST(ShortWords, OnlyLongOnesAreCut) {
  const std::string path(100'000, 'x'), ordinary = "  two words,\n\tand " + std::string(500, 'y');
  EXPECT_EQ(with_short_words(ordinary), ordinary);
  EXPECT_EQ(with_short_words(""), "");
  EXPECT_EQ(
      with_short_words("no " + path + " here"),
      "no " + std::string(200, 'x') + "[... 99700 bytes ...]" + std::string(100, 'x') + " here");
  // Characters stay whole.
  std::string word = "a";
  for (int i = 0; i < 400; ++i) word += "\xc3\xa9";
  const std::string shown = with_short_words(word);
  EXPECT_EQ(shown.substr(0, shown.find('[')).size() % 2, 1u);
  EXPECT_EQ(shown.substr(shown.find(']') + 1).substr(0, 2), "\xc3\xa9");
}

}  // namespace
}  // namespace tapestry
