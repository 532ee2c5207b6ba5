// Answers that a user's program judges: evaluate --judge.
#include <gmock/gmock.h>

#include "apps/tasks/prompts/judge.h"
#include "core/base/error.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

const std::vector<AnswerToJudge> kAnswers = {
    {"What?", "this", "that"}, {"A \"quote\"\nand a line", "x", "x"}, {"Ill-formed", "y", "\xFF"}};

std::string refusal(const std::string& command) {
  try {
    judge(command, kAnswers);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Judge, ReadsALineForEachAnswer) {
  EXPECT_THAT(judge("while read -r line; do echo 0.25; done", kAnswers),
              ElementsAre(0.25, 0.25, 0.25));
  EXPECT_THAT(judge("cat > /dev/null; printf 'true\\nfalse\\n 1 '", kAnswers),
              ElementsAre(1, 0, 1));
  // Fields are told apart by their names, and lines by their ends.
  EXPECT_THAT(judge("sed -E 's/^.*\"reference\":\"(.*)\",\"answer\":\"(.*)\".*$/\\1 \\2/' |"
                    " awk '{ print ($1 == $2) }'",
                    kAnswers),
              ElementsAre(0, 1, 0));
}

TEST(Judge, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("echo 1; exit 3"),
              HasSubstr("'echo 1; exit 3' ended with exit code 3 after 1"));
  EXPECT_THAT(refusal("kill -9 $$"), HasSubstr("ended with signal 9"));
  EXPECT_THAT(refusal("echo 1; echo 0"), HasSubstr("a line for each of 3 answers"));
  EXPECT_THAT(refusal("yes 1 | head -n 4"), HasSubstr("wrote 4."));
  EXPECT_THAT(refusal("yes 1"), HasSubstr("'yes 1' wrote more than 16384 bytes."));
  EXPECT_THAT(refusal("echo 1; echo 1.5; echo 1"),
              HasSubstr("line 2 of 'echo 1; echo 1.5; echo 1': expected a number from 0 to 1, true "
                        "or false, got '1.5'."));
  EXPECT_THAT(refusal("no-such-program"), HasSubstr("exit code 127"));
}

TEST(EvaluateJudge, ToldAPassRateBesideTheOtherFigures) {
  const TinyRunFolder folder("judge");
  ASSERT_EQ(folder.train("prompts", "run", {"training.max_steps=60"}), 0) << folder.messages();
  const auto figures = [&](const std::string& judge) {
    return Json::parse(
        folder.output(concat("evaluate --model run --data valid --json", judge), ""));
  };
  const Json plain = figures("");
  folder.write("exact.sh",
               "sed -E 's/^.*\"reference\":\" ?(.*)\",\"answer\":\" ?(.*)\".*$/"
               "\\1 \\2/' | awk '{ print ($1 == $2) }'");
  Json judged = figures(" --judge 'sh exact.sh'");
  EXPECT_NEAR(judged.at("pass_rate").get<double>(), plain.at("exact_match").get<double>(), 1e-9);
  EXPECT_TRUE(judged.at("intervals").contains("pass_rate"));
  judged.erase("pass_rate");
  judged.at("intervals").erase("pass_rate");
  EXPECT_EQ(judged, plain);
  EXPECT_EQ(figures(" --judge 'sed s/.*/0.5/'").at("pass_rate"), 50);
  const auto text = folder.run("evaluate --model run --text train.src --judge cat", "");
  EXPECT_NE(text.code, 0);
  EXPECT_THAT(text.err, HasSubstr("expected a causal model and records with the keys prompt and"));
}

}  // namespace
}  // namespace tapestry
