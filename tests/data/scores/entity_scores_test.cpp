// Entities and their scores against seqeval (tests/fixtures/entity_scores.py).
#include "data/scores/entity_scores.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Json = nlohmann::json;
using Tags = std::vector<std::string>;

std::vector<std::string_view> views(const Tags& tags) { return {tags.begin(), tags.end()}; }

TEST(EntityScores, AreSeqevals) {
  const Json records = Json::parse(read_file(project_file("tests/fixtures/entity_scores.json")));
  ASSERT_GT(records.size(), 50u);
  for (const Json& record : records) {
    SCOPED_TRACE(record.dump());
    EntityCounts counts;
    for (size_t i = 0; i < record["truth"].size(); ++i) {
      const auto truth = record["truth"][i].get<Tags>(), given = record["given"][i].get<Tags>();
      std::vector<Entity> expected;
      for (const Json& entity : record["entities"][i]) {
        expected.push_back({entity[0], entity[1], entity[2]});
      }
      EXPECT_TRUE(entities_of(views(truth)) == expected);
      counts.add(views(truth), views(given));
    }
    const auto metrics = counts.metrics();
    for (const char* name : {"precision", "recall", "f1", "accuracy"}) {
      EXPECT_NEAR(metrics.at(name), 100 * record[name].get<double>(), 1e-9) << name;
    }
    const ClassScores scores = counts.scores();
    size_t found = 0;
    for (const ClassScores::Class& one : scores.classes) {
      if (!record["types"].contains(one.name)) continue;
      const Json& type = record["types"][one.name];
      EXPECT_NEAR(one.precision, 100 * type[0].get<double>(), 1e-9) << one.name;
      EXPECT_NEAR(one.recall, 100 * type[1].get<double>(), 1e-9) << one.name;
      EXPECT_NEAR(one.f1, 100 * type[2].get<double>(), 1e-9) << one.name;
      EXPECT_EQ(one.examples, type[3]) << one.name;
      ++found;
    }
    EXPECT_EQ(found, record["types"].size());
  }
}

TEST(EntityScores, SentencesHaveATagForEachWord) {
  EntityCounts counts;
  EXPECT_ANY_THROW(counts.add({"O", "O"}, {"O"}));
}

}  // namespace
}  // namespace tapestry
