#include "data/n_best/n_best_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

class NBestFileTest : public testing::Test {
 protected:
  std::vector<std::vector<NBestEntry>> read(const std::string& text, int64_t lines) const {
    return read_n_best(files_.write("list", text), lines);
  }
  std::string refusal(const std::string& text, int64_t lines) const {
    return error_of(ErrorKind::kData, [&] { read(text, lines); });
  }

  TempFolder files_;
};

TEST_F(NBestFileTest, HasTheEntriesOfEachLine) {
  const auto lists = read(
      "0 ||| ein Haus ||| F0= -1.5 ||| -0.5\n"
      "0 ||| a | b ||| Distortion0= -2 XF0= 3 F0= -2.5 0.25 ||| -0.75 ||| 0-0 1-1 ||| 7\n"
      "1 |||  ||| F0= 0 ||| 0\n"
      "2|||y||| |||1e-3",
      3);
  ASSERT_EQ(lists.size(), 3U);
  ASSERT_EQ(lists[0].size(), 2U);
  EXPECT_EQ(lists[0][0].text, "ein Haus");
  EXPECT_EQ(lists[0][0].log_probability, -1.5);
  EXPECT_EQ(lists[0][0].score, -0.5);
  EXPECT_EQ(lists[0][0].rest, "");
  EXPECT_EQ(lists[0][1].text, "a | b");
  EXPECT_EQ(lists[0][1].features, "Distortion0= -2 XF0= 3 F0= -2.5 0.25");
  EXPECT_EQ(lists[0][1].log_probability, -2.5);
  EXPECT_EQ(lists[0][1].rest, " ||| 0-0 1-1 ||| 7");
  EXPECT_EQ(lists[0][1].line, 2);
  EXPECT_EQ(lists[1].at(0).text, "");
  EXPECT_EQ(lists[2].at(0).text, "y");
  EXPECT_EQ(lists[2].at(0).log_probability, std::nullopt);
  EXPECT_EQ(lists[2].at(0).score, 1e-3);
}

TEST_F(NBestFileTest, TellsWhereItIsWrong) {
  const std::string good = "0 ||| a ||| F0= -1 ||| -1\n";
  EXPECT_THAT(refusal(good + "1 ||| b ||| F0= -1\n", 2),
              HasSubstr("list:2: expected NUMBER ||| TEXT ||| VALUES ||| SCORE, got '1 ||| b ||| "
                        "F0= -1'."));
  EXPECT_THAT(refusal("x ||| b ||| F0= -1 ||| 1\n", 2), HasSubstr("list:1: expected NUMBER"));
  EXPECT_THAT(refusal("0 ||| b ||| F0= -1 ||| nan\n", 2), HasSubstr("list:1: expected NUMBER"));
  EXPECT_THAT(refusal("0 ||| b ||| F0= x ||| 1\n", 2),
              HasSubstr("list:1: expected a number behind F0=, got 'x'."));
  EXPECT_THAT(refusal("0 ||| b ||| F0=\n", 2), HasSubstr("list:1: expected NUMBER"));
  EXPECT_THAT(refusal("0 ||| b ||| F0= ||| 1\n", 2), HasSubstr("behind F0=, got ''."));
  EXPECT_THAT(refusal(good + "2 ||| b ||| ||| 1\n", 2),
              HasSubstr("list:2: expected the number of one of the 2 lines of the source, from 0, "
                        "got 2."));
  EXPECT_THAT(refusal("-1 ||| b ||| ||| 1\n", 2), HasSubstr("from 0, got -1."));
  EXPECT_THAT(refusal(good + "1 ||| b ||| ||| 1\n" + good, 2),
              HasSubstr("list:3: expected numbers that rise, got 0 after 1."));
  EXPECT_THAT(refusal(good + "2 ||| b ||| ||| 1\n", 3),
              HasSubstr("has no translation of line 2 of the source, whose number is 1."));
  EXPECT_THAT(refusal("0 ||| \xff ||| ||| 1\n", 1), HasSubstr("list:1: expected UTF-8, byte 7"));
  EXPECT_THAT(refusal("", 1), HasSubstr("list"));
}

TEST_F(NBestFileTest, ValuesHaveNames) {
  const std::string values = "F0= -1.5 lm:a=b= 2 3 XF0= 4 last=";
  EXPECT_EQ(named_value(values, "F0"), "-1.5");
  EXPECT_EQ(named_value(values, "lm:a=b"), "2");
  EXPECT_EQ(named_value(values, "last"), "");
  EXPECT_EQ(named_value(values, "lm"), std::nullopt);
  EXPECT_EQ(without_value(values, "lm:a=b"), "F0= -1.5 XF0= 4 last=");
  EXPECT_EQ(without_value(values, "F0"), "lm:a=b= 2 3 XF0= 4 last=");
  EXPECT_EQ(without_value(values, "lm"), values);
}

TEST_F(NBestFileTest, BarsWithinTextComeBack) {
  const std::string text = "a ||| b |||";
  const std::string field = as_n_best_field(text);
  EXPECT_EQ(field.find("|||"), std::string::npos);
  EXPECT_EQ(read("0 ||| " + field + " ||| ||| 1\n", 1)[0][0].text, text);
}

}  // namespace
}  // namespace tapestry
