// Pairs that are scored and aligned.
#include <gmock/gmock.h>

#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;

TEST(Score, AlignsPairsAsTheirTranslationWas) {
  const TinyRunFolder folder("aligned");
  ASSERT_EQ(folder.train("translation", "run", {"training.max_steps=120"}), 0) << folder.messages();
  const std::string source = "ba ce di\nlo mu ha ba\nfo\n";
  folder.write("pairs.src", source);
  const std::string model = "--model run";
  for (const std::string units : {"words", "tokens"}) {
    const std::string how = concat(" --alignment-units ", units, " --alignments ");
    folder.write("pairs.tgt", folder.output(concat("translate ", model, how, "as.told"), source));
    const std::string pairs = concat("score ", model, " --source pairs.src --target pairs.tgt ");
    const std::vector<std::string> plain = lines_of(folder.output(pairs, ""));
    EXPECT_EQ(lines_of(folder.output(concat(pairs, how, "as.scored"), "")), plain);
    const std::string told = read_file(folder.path("as.told"));
    EXPECT_EQ(read_file(folder.path("as.scored")), told);
    const std::vector<std::string> behind = lines_of(folder.output(concat(pairs, how, "-"), ""));
    EXPECT_EQ(behind.at(1), concat(plain.at(1), " ||| ", lines_of(told).at(1)));
  }
  const auto alone = folder.run(concat("score ", model, " --target pairs.tgt --alignments x"), "");
  EXPECT_NE(alone.code, 0);
  EXPECT_THAT(alone.err, HasSubstr("--source"));
}

}  // namespace
}  // namespace tapestry
