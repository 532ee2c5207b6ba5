#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

TEST(SplitSentences, AreTranslatedByThemselvesAndPutTogetherAgain) {
  const TinyRunFolder folder("split");
  ASSERT_EQ(folder.train("translation", "run", {"training.learning_rate=0.01"}), 0)
      << folder.messages();
  const std::string lines = "ba ce di!\nfo gu ha?\nje\n\nki lo!\n";
  const std::string apart = folder.output("translate --model run", lines);
  std::vector<std::string> texts;
  std::istringstream in(apart);
  for (std::string text; std::getline(in, text);) texts.push_back(text);
  ASSERT_EQ(texts.size(), 5U);
  const std::string together = "  ba ce di!  fo gu ha? je\n\nki lo! \n";
  EXPECT_EQ(folder.output("translate --model run --split-sentences en", together),
            texts[0] + "  " + texts[1] + " " + texts[2] + "\n\n" + texts[4] + "\n");
  // Lines of one sentence are as without it, one at a time or together.
  EXPECT_EQ(folder.output("translate --model run --split-sentences de --batch-size 1", lines),
            apart);
  // Equal sentences of a line have draws of their own, which are those of as many lines.
  const std::string draw = "translate --model run --do-sample --seed 3";
  std::string drawn = folder.output(draw, "ba ce di!\nba ce di!\nba ce di!\n");
  std::ranges::replace(drawn, '\n', ' ');
  drawn.back() = '\n';
  EXPECT_EQ(folder.output(draw + " --split-sentences en", "ba ce di! ba ce di! ba ce di!\n"),
            drawn);
  const auto refused = folder.run("translate --model run --split-sentences xq", "ba\n");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("expected a code of a language such as en or de, got 'xq'"));
  const auto excluded = folder.run("translate --model run --split-sentences en --n-best 2", "ba\n");
  EXPECT_NE(excluded.code, 0);
  EXPECT_THAT(excluded.err, HasSubstr("--n-best"));
}

}  // namespace
}  // namespace tapestry
