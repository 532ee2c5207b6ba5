#include "apps/commands/pages/text_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(TextChart, DrawsARisingLine) {
  const TextCurve curve{.name = "", .x = {0, 1, 2, 3}, .y = {0, 1, 2, 3}, .colour = 0};
  EXPECT_THAT(text_chart({.title = "loss", .curves = {curve}}, 24, 4, /*colours=*/false),
              ElementsAre("loss  ■ 3               ", "      3 ▏          ▄▄▄▀▘",
                          "        ▏    ▗▄▄▞▀▀     ", "      0 ▏▄▞▀▀▘          "));
}

TEST(TextChart, EveryLineIsAsWideAsAsked) {
  const TextCurve curve{.name = "training", .x = {1, 2, 3}, .y = {5, NAN, 1e-7}, .colour = 1};
  for (const size_t width : {24u, 61u, 200u}) {
    for (const bool colours : {false, true}) {
      const auto lines =
          text_chart({.title = "learning rate", .curves = {curve, curve}}, width, 9, colours);
      EXPECT_EQ(lines.size(), 9u);
      for (const std::string& line : lines) EXPECT_EQ(text_width(line), width) << line;
    }
  }
}

TEST(TextChart, OneValueAndNoneAreDrawn) {
  const TextCurve one{.name = "", .x = {1}, .y = {2}, .colour = 0};
  // At the end of the run so far.
  EXPECT_THAT(text_chart({.title = "bleu", .curves = {one}, .first = 0, .last = 1}, 30, 5, false),
              testing::Contains(testing::EndsWith("█")));
  const TextCurve nan{.name = "", .x = {1}, .y = {NAN}, .colour = 0};
  const auto lines = text_chart({.title = "bleu", .curves = {nan}}, 30, 5, false);
  EXPECT_THAT(lines[0], HasSubstr("■ -"));
  for (const std::string& line : lines) EXPECT_THAT(line, Not(HasSubstr("nan")));
}

// The first loss of a long run is far above all others.
TEST(TextChart, AFewHighValuesDoNotPressTheRest) {
  TextCurve curve;
  for (int i = 0; i < 200; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i == 0 ? 1000 : 2 + i % 2);
  }
  EXPECT_THAT(text_chart({.title = "loss", .curves = {curve}}, 40, 6, false)[1],
              HasSubstr("      3 ▏"));
}

TEST(TextChart, NumbersAreShort) {
  EXPECT_EQ(short_number(1.23456), "1.235");
  EXPECT_EQ(short_number(56789), "56.79k");
  EXPECT_EQ(short_number(5.6e-5), "5.6e-05");
  EXPECT_EQ(short_number(-INFINITY), "-");
  for (const double value : {1e300, -123456.0, 9.999e14, 0.00123}) {
    EXPECT_LE(short_number(value).size(), 8u) << value;
  }
}

TEST(TextChart, CutLinesEndWithoutColour) {
  EXPECT_EQ(fit_width("\033[1mabc\033[0m", 2), "\033[1ma\033[0m…");
  EXPECT_EQ(fit_width("at 1000", 6), "at 10…");
  EXPECT_EQ(fit_width("at 1000", 7), "at 1000");
  EXPECT_EQ(fit_width("äb", 4), "äb  ");
}

}  // namespace
}  // namespace tapestry
