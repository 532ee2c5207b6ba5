#include "apps/run/outputs/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tapestry {
namespace {

TEST(ProgressLineTest, SaysHowFastAndHowLong) {
  EXPECT_EQ(
      status_of({.what = "translating", .unit = "lines", .done = 50, .total = 200, .seconds = 10}),
      "lines  5/s  30s left");
  EXPECT_EQ(status_of({.what = "reading", .unit = "%", .done = 25, .total = 100, .seconds = 20}),
            "%  1m 00s left");
  // Where nobody knows the end, or nothing is done yet.
  EXPECT_EQ(status_of({.what = "answering", .unit = "lines", .done = 30, .total = 0, .seconds = 3}),
            "lines  10/s  3s");
  EXPECT_EQ(status_of({.what = "scoring", .unit = "batches", .done = 0, .total = 7, .seconds = 3}),
            "batches  3s");
  EXPECT_EQ(
      status_of(
          {.what = "training the tokenizer", .unit = "", .done = 0, .total = 0, .seconds = 61}),
      "1m 01s");
}

TEST(ProgressLineTest, NothingIsDrawnWithoutATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressDisplay display;
    ProgressLine line;
    line.draw(1, 2, "status");
    const Progress work("working");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tapestry
