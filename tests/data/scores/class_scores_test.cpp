#include "data/scores/class_scores.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using testing::DoubleNear;
using testing::Pointwise;

// The expected values are scikit-learn's (tests/fixtures/class_scores.py).
TEST(ClassScores, AreScikitLearns) {
  const Json cases = Json::parse(read_file(project_file("tests/fixtures/class_scores.json")));
  ASSERT_EQ(cases.size(), 5u);
  for (const Json& expected : cases) {
    std::vector<std::string> names;
    for (int i = 0; i < expected.at("classes").get<int>(); ++i) names.push_back(concat("c", i));
    ClassCounts counts(names);
    for (size_t i = 0; i < expected.at("truth").size(); ++i) {
      counts.add(expected.at("truth")[i], expected.at("scores")[i].get<std::vector<double>>());
    }
    const ClassScores scores = counts.scores();
    EXPECT_NEAR(scores.accuracy, expected.at("accuracy"), 1e-10);
    EXPECT_NEAR(scores.macro_f1, expected.at("macro_f1"), 1e-10);
    EXPECT_NEAR(scores.weighted_f1, expected.at("weighted_f1"), 1e-10);
    EXPECT_EQ(Json(scores.confusion), expected.at("confusion"));
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(scores.classes[i].name, names[i]);
      EXPECT_NEAR(scores.classes[i].precision, expected.at("precision")[i], 1e-10);
      EXPECT_NEAR(scores.classes[i].recall, expected.at("recall")[i], 1e-10);
      EXPECT_NEAR(scores.classes[i].f1, expected.at("f1")[i], 1e-10);
      EXPECT_EQ(scores.classes[i].examples, expected.at("examples")[i]);
    }
    const Json& top = expected.at("top_k_accuracy");
    for (size_t k = 1; k <= top.size(); ++k) {
      EXPECT_NEAR(counts.top_k_accuracy(static_cast<int64_t>(k)), top[k - 1], 1e-10) << k;
    }
    EXPECT_EQ(counts.top_k_accuracy(static_cast<int64_t>(names.size())), 100);
  }
}

TEST(ClassScores, TakeTheFirstOfEqualScores) {
  ClassCounts counts({"a", "b", "c"});
  counts.add(1, std::vector<double>{0.5, 0.5, 0});
  EXPECT_EQ(counts.scores().confusion[1][0], 1);
  EXPECT_EQ(counts.top_k_accuracy(1), 0);
  EXPECT_EQ(counts.top_k_accuracy(2), 100);
}

}  // namespace
}  // namespace tapestry
