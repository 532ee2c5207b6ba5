#include "data/scores/correlation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Numbers = std::vector<double>;

// The expected values are scipy's (tests/fixtures/correlation.py).
TEST(Correlation, IsScipys) {
  const auto records =
      nlohmann::json::parse(read_file(project_file("tests/fixtures/correlation.json")));
  ASSERT_GT(records.size(), 8u);
  for (const auto& record : records) {
    const auto a = record["a"].get<Numbers>(), b = record["b"].get<Numbers>();
    EXPECT_NEAR(pearson_correlation(a, b), record["pearson"], 1e-12);
    EXPECT_NEAR(spearman_correlation(a, b), record["spearman"], 1e-12);
  }
}

TEST(Correlation, OfAConstantIsNoNumber) {
  EXPECT_TRUE(std::isnan(pearson_correlation({1, 1}, {1, 2})));
  EXPECT_TRUE(std::isnan(spearman_correlation({1}, {2})));
  EXPECT_TRUE(std::isnan(spearman_correlation({1, NAN}, {1, 2})));
  EXPECT_ANY_THROW(pearson_correlation({1, 2}, {1}));
}

}  // namespace
}  // namespace tapestry
