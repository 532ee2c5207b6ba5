#include "core/base/progress.h"

#include <gtest/gtest.h>

namespace tapestry {
namespace {

TEST(ProgressTest, ShowsTheOutermostWork) {
  EXPECT_FALSE(ProgressNow::look());
  int ends = 0;
  when_progress_ends([&] { ++ends; });
  {
    Progress whole("translating", 10, "lines");
    whole.to(3);
    {
      Progress part("a batch");
      part.add();
      EXPECT_EQ(ProgressNow::look()->what, "translating");
      EXPECT_EQ(ProgressNow::look()->done, 3);
    }
    EXPECT_EQ(ends, 1);
    EXPECT_EQ(ProgressNow::look()->total, 10);
    EXPECT_EQ(ProgressNow::look()->unit, "lines");
    EXPECT_GE(ProgressNow::look()->seconds, 0);
  }
  EXPECT_EQ(ends, 2);
  EXPECT_FALSE(ProgressNow::look());
  when_progress_ends({});
}

TEST(ProgressTest, WhatBeganFirstMayEndFirst) {
  auto first = std::make_unique<Progress>("first");
  const Progress second("second");
  first.reset();
  EXPECT_EQ(ProgressNow::look()->what, "second");
}

}  // namespace
}  // namespace tapestry
