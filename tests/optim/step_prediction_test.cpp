// Values computed by hand from the formulas of optim/step_prediction.h; and the table of the design
// page, computed for other people's questions.
#include "optim/step_prediction.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/base/error.h"

namespace tapestry {
namespace {

// b / B = 2 s; a quarter is complete at the end, the rest 2 s before.
const StepCost kCost{
    .micro_batch_seconds = 3, .update_seconds = 0.5, .ready = {{100, 2.5}, {50, 2}, {50, 0}}};
const Link kLink{.latency_seconds = 0.01, .bytes_per_second = 100};

TEST(PredictStep, OneRankWaitsForNobody) {
  for (const Shard shard : kShards) {
    const StepPrediction one = predict_step(kCost, kLink, shard, 1, 4);
    EXPECT_DOUBLE_EQ(one.seconds, 12.5);
    EXPECT_EQ(one.exposed_seconds, 0);
    EXPECT_EQ(one.efficiency, 1);
  }
}

TEST(PredictStep, WhatIsLateIsExposed) {
  // S = 1/2 2 = 1, hidden behind backward but for a quarter of 2.
  const StepPrediction none = predict_step(kCost, kLink, Shard::kNone, 2, 4);
  EXPECT_DOUBLE_EQ(none.exposed_seconds, 0.5);
  EXPECT_DOUBLE_EQ(none.seconds, 13);
  EXPECT_DOUBLE_EQ(none.efficiency, 12.5 / 13);
  // A quarter of S, then S and the latency; half of the update.
  const StepPrediction slices = predict_step(kCost, kLink, Shard::kOptimizer, 2, 4);
  EXPECT_DOUBLE_EQ(slices.exposed_seconds, 0.25 + 1 + 0.01);
  EXPECT_DOUBLE_EQ(slices.seconds, 12 + 1.26 + 0.25);
}

// The second bucket waits for the first, and nothing for the third.
TEST(PredictStep, BucketsGoOneAfterTheOther) {
  const StepCost cost{.micro_batch_seconds = 9, .ready = {{100, 1.5}, {100, 1}, {1, 0.9}}};
  // 2 S of both: 2 s from the first's completion, 1.5 s before the end; and the third's.
  EXPECT_DOUBLE_EQ(predict_step(cost, kLink, Shard::kNone, 2, 1).exposed_seconds, 0.51);
}

TEST(PredictStep, ASlowLinkIsNotHiddenByBackward) {
  // S = 3/4 20 = 15: of 2 S 2.5 s pass before the end, of S as many.
  const Link slow{.latency_seconds = 0, .bytes_per_second = 10};
  EXPECT_DOUBLE_EQ(predict_step(kCost, slow, Shard::kNone, 4, 1).seconds, 3 + 27.5 + 0.5);
  EXPECT_DOUBLE_EQ(predict_step(kCost, slow, Shard::kOptimizer, 4, 1).seconds,
                   3 + 12.5 + 15 + 0.125);
}

// GPT-2 124M (124.4 million parameters, 32 % late), c = 4 s, 1 Gb/s (113 MB/s), no time for the
// update: 50 (49) %, 80 (79) %, 94 (94) %.
TEST(PredictStep, TheDesignsTable) {
  constexpr double kBytes = 4 * 124.4e6, kLate = 0.32;
  const StepCost gpt2{.micro_batch_seconds = 4,
                      .ready = {{(1 - kLate) * kBytes, 2. / 3 * 4}, {kLate * kBytes, 0}}};
  const Link gigabit{.latency_seconds = 0, .bytes_per_second = 113e6};
  const auto percent = [&](Shard shard, int64_t micro_batches) {
    return 100 * predict_step(gpt2, gigabit, shard, 4, micro_batches).efficiency;
  };
  EXPECT_NEAR(percent(Shard::kNone, 1), 50, 1);
  EXPECT_NEAR(percent(Shard::kNone, 4), 80, 1);
  EXPECT_NEAR(percent(Shard::kNone, 16), 94, 1);
}

TEST(MicroBatchesFor, TheFewestThatReachIt) {
  // (3 m + 0.5) / (3 m + 1) >= 0.9 from m = 1.5 on.
  EXPECT_EQ(micro_batches_for(0.9, kCost, kLink, Shard::kNone, 2), 2);
  EXPECT_EQ(micro_batches_for(0.1, kCost, kLink, Shard::kNone, 2), 1);
  EXPECT_EQ(micro_batches_for(0.9, kCost, kLink, Shard::kNone, 1), 1);
  // (3 m + 0.5) / (3 m + 28) >= 0.9 from m = 82.33 on.
  const Link slow{.latency_seconds = 0, .bytes_per_second = 10};
  EXPECT_EQ(micro_batches_for(0.9, kCost, slow, Shard::kNone, 4), 83);
  const Link broken{.latency_seconds = 0, .bytes_per_second = 1e-9};
  EXPECT_EQ(micro_batches_for(0.9, kCost, broken, Shard::kNone, 4), 0);
}

TEST(PredictStep, RefusesNothing) {
  EXPECT_THROW(predict_step(kCost, kLink, Shard::kNone, 0, 1), Error);
  EXPECT_THROW(predict_step(kCost, kLink, Shard::kNone, 2, 0), Error);
}

}  // namespace
}  // namespace tapestry
