#include "data/scores/retrieval.h"

#include <gtest/gtest.h>

#include <vector>

namespace tapestry {
namespace {

TEST(RetrievalTest, CountsTheRanksUpToK) {
  const std::vector<int64_t> ranks = {1, 2, 5, 10, 11, 1};
  const auto scores = retrieval_scores(ranks);
  EXPECT_DOUBLE_EQ(scores.at("recall_at_1"), 100. * 2 / 6);
  EXPECT_DOUBLE_EQ(scores.at("recall_at_5"), 100. * 4 / 6);
  EXPECT_DOUBLE_EQ(scores.at("recall_at_10"), 100. * 5 / 6);
  EXPECT_DOUBLE_EQ(scores.at("mrr"), (1 + 0.5 + 0.2 + 0.1 + 1. / 11 + 1) / 6);
  EXPECT_EQ(retrieval_scores({}).at("mrr"), 0);
}

}  // namespace
}  // namespace tapestry
