// What people look at of a validation: which examples, and how scores are grouped.
#include "apps/tasks/validation_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(ValidationDetails, ExamplesAreSpreadEvenly) {
  EXPECT_THAT(shown_examples(4, 1000), ElementsAre(0, 250, 500, 750));
  EXPECT_THAT(shown_examples(4, 2), ElementsAre(0, 1));
  EXPECT_THAT(shown_examples(0, 10), IsEmpty());
  EXPECT_THAT(shown_examples(3, 0), IsEmpty());
}

TEST(ValidationDetails, AnErrorOfSamplesIsKeptAndNotThrown) {
  ValidationDetails details{.wanted = 1};
  show_samples(&details, []() -> std::vector<Sample> { fail(ErrorKind::kData, "no room"); });
  EXPECT_EQ(details.problem, "no room");
  bool asked = false;
  const auto ask = [&] {
    asked = true;
    return std::vector<Sample>();
  };
  show_samples(nullptr, ask);
  details.wanted = 0;
  show_samples(&details, ask);
  EXPECT_FALSE(asked);
}

TEST(ValidationDetails, LengthsWithFewSentencesAreJoined) {
  std::vector<std::string> references(30, "one two three");
  references.insert(references.end(), 25, "a b c d e f g");
  references.insert(references.end(), 3, "a b c d e f g h i j k l m");
  std::vector<std::vector<size_t>> groups;
  const auto scores = scores_by_length(references, [&](const std::vector<size_t>& sentences) {
    groups.push_back(sentences);
    return static_cast<double>(groups.size());
  });
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].from, 3);
  EXPECT_EQ(scores[0].to, 3);
  EXPECT_EQ(scores[0].sentences, 30);
  EXPECT_EQ(scores[1].from, 7);
  EXPECT_EQ(scores[1].to, 13);
  EXPECT_EQ(scores[1].sentences, 28);
  EXPECT_EQ(scores[1].score, 2);
  EXPECT_EQ(groups[1].front(), 30u);
}

TEST(ValidationDetails, GuessesAreTheMostProbableClasses) {
  EXPECT_THAT(best_guesses({"a", "b", "c", "d"}, {0.1, 0.4, 0.2, 0.3}),
              ElementsAre(Pair("b", 0.4), Pair("d", 0.3), Pair("c", 0.2)));
  EXPECT_THROW(best_guesses({"a", "b"}, {0.5, std::nan("")}), Error);
}

}  // namespace
}  // namespace tapestry
