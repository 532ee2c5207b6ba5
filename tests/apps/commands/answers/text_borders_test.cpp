// What filters do with lines that are empty, ill-formed, too long or unknown, and how what they
// write stays line by line. The right values follow from the inputs.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <set>

#include "apps/commands/answers/filter.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;
using Lines = std::vector<std::string>;

// A line of each: format characters, controls, marks of direction, a soft hyphen, all of them.
constexpr const char* kUnseen[] = {"\u200B",
                                   "\u2060",
                                   "\uFEFF",
                                   "\u00AD",
                                   "\u200E\u202A\u2069",
                                   "\x01\x1F\x7F",
                                   "\u0085\u2028",
                                   "\uFE0F",
                                   " \u00A0\u200B\u2060\t"};
constexpr size_t kUnseenLines = std::size(kUnseen);

/// Models are trained once, when they are first asked for.
class TextBordersTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { folder_ = std::make_unique<TinyRunFolder>("borders"); }
  static void TearDownTestSuite() { folder_.reset(); }

  static const std::string& trained(const std::string& task,
                                    std::vector<std::string> overrides = {}) {
    static std::set<std::string> runs;
    const auto [run, is_new] = runs.insert(task);
    if (is_new) {
      overrides.emplace_back("training.max_steps=5");
      EXPECT_EQ(folder_->train(task, task, overrides), 0) << folder_->messages();
    }
    return *run;
  }
  /// A model of characters that answers every line with two: "a<LF>b c".
  static const std::string& two_lines() {
    static const std::string run = "two_lines";
    if (!std::filesystem::exists(folder_->path(run))) {
      const auto corpus = [](const std::string& extra) {
        std::string records;
        for (const char* word : {"ba", "ce di", "fo gu ha", "je", "ki lo"}) {
          records += Json{{"source", word + extra}, {"target", "a\nb c"}}.dump() + '\n';
        }
        return records;
      };
      folder_->write("two_lines.jsonl", corpus(""));
      folder_->write("strange.jsonl", corpus(" Ж"));
      EXPECT_EQ(
          folder_->train("translation", run,
                         {"data={train: {jsonl: two_lines.jsonl}, valid: {jsonl: "
                          "strange.jsonl}, max_length: 32}",
                          "tokenizer={type: char}", "generation={num_beams: 2, max_new_tokens: 4}",
                          "training.max_steps=200", "training.label_smoothing=0"}),
          0)
          << folder_->messages();
      log() = read_file(folder_->path(run + "/train.log"));
    }
    return run;
  }
  static std::string& log() {
    static std::string text;
    return text;
  }
  static Lines answers(const std::string& arguments, const std::string& input) {
    return lines_of(folder_->output(arguments, input));
  }

  static std::unique_ptr<TinyRunFolder> folder_;
};

std::unique_ptr<TinyRunFolder> TextBordersTest::folder_;

// Empty lines

TEST_F(TextBordersTest, LinesThatShowNothingAreEmptyLines) {
  std::string input, empty;
  for (const char* const line : kUnseen) input += std::string(line) + '\n', empty += '\n';
  const Lines nothing(kUnseenLines);
  EXPECT_EQ(answers("translate --model " + trained("translation"), input), nothing);
  EXPECT_EQ(answers("classify --model " + trained("classification"), input), nothing);
  EXPECT_EQ(answers("fill-mask --model " + trained("mlm"), input), nothing);
  EXPECT_EQ(answers("fill-mask --model " + trained("infilling"), input), nothing);
  EXPECT_EQ(answers("generate --model " + trained("clm"), input), nothing);
  EXPECT_EQ(answers("answer --model " + trained("questions"), input), nothing);
  EXPECT_EQ(answers("score --model clm --target in", input),
            answers("score --model clm --target in", empty));
  // A part of the line decides nothing: the rest is answered.
  EXPECT_NE(answers("translate --model translation", "ba\u2060\n"), Lines{""});
}

TEST_F(TextBordersTest, ScoreNamesAPairThatShowsNothing) {
  folder_->write("sources", "ba ce\nba\n");
  folder_->write("targets", "ce ba\n\u2060\n");
  const auto outcome =
      folder_->run("score --source sources --target targets --model " + trained("translation"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("1 empty (first targets:2)"));
}

// Lines

TEST(OneLine, HasNoLineEnds) {
  EXPECT_EQ(one_line("a\nb\r\nc"), "a\\nb\\r\\nc");
  EXPECT_EQ(one_line("\v\f\u0085\u2028\u2029"), "\\v\\f\\u0085\\u2028\\u2029");
  EXPECT_EQ(one_line("ä\tb \u2027"), "ä\tb \u2027");
}

TEST_F(TextBordersTest, OneLineInIsOneLineOut) {
  const std::string translate = "translate --max-new-tokens 20 --model " + two_lines();
  const std::string input = "ba\n\nce di\n";
  EXPECT_EQ(answers(translate, input), (Lines{"a\\nb c", "", "a\\nb c"}));
  const Lines scored = answers(translate + " --word-scores", input);
  ASSERT_EQ(scored.size(), 3u);
  // Two words between spaces, and the end.
  EXPECT_EQ(std::count(scored[0].begin(), scored[0].end(), ' '), 1 + 2) << scored[0];
  EXPECT_EQ(answers(translate + " --beam-size 4 --n-best 3", input).size(), 9u);
  const Json object = Json::parse(answers(translate + " --detail jsonl", input).at(0));
  EXPECT_EQ(object["translations"][0]["text"], "a\nb c");
}

TEST_F(TextBordersTest, AnNBestListHasAsManyLinesForEachLine) {
  const std::string input = "ba ce\n\n\u200B\nlo\n";
  const std::string beams = " --beam-size 4 --n-best 3";
  for (const char* options : {"", " --alignments -", " --word-scores", " --alignments table"}) {
    const Lines lines =
        answers(concat("translate --model ", trained("translation"), beams, options), input);
    ASSERT_EQ(lines.size(), 12u) << options;
    for (size_t i = 3; i < 9; ++i) EXPECT_EQ(lines[i], "") << options;
  }
  EXPECT_EQ(lines_of(read_file(folder_->path("table"))).size(), 12u);
  EXPECT_EQ(answers("generate --samples 2 --model " + trained("clm"), input).size(), 8u);
  EXPECT_EQ(answers("generate --no-do-sample --beam-size 3 --n-best 2 --model clm", input).size(),
            8u);
  EXPECT_EQ(answers("answer --n-best 2 --model " + trained("questions"),
                    "ba ce\tafter ba\n\n\u2060\nba\t\u2060\n")
                .size(),
            8u);
  // An object for each line, with no continuations of an empty one.
  const Lines objects = answers("generate --detail jsonl --model clm", input);
  ASSERT_EQ(objects.size(), 4u);
  EXPECT_TRUE(Json::parse(objects[2]).at("continuations").empty());
}

TEST_F(TextBordersTest, MosesListsHaveNumbersAndScores) {
  const std::string input = "ba ce\n\nlo\n";
  const std::string command =
      concat("translate --beam-size 4 --n-best 2 --model ", trained("translation"));
  const Lines texts = answers(command, input);
  const Lines objects = answers(command + " --detail jsonl", input);
  const Lines moses = answers(command + " --n-best-format moses", input);
  const Lines aligned = answers(command + " --n-best-format moses --alignments -", input);
  ASSERT_EQ(moses.size(), 6u);
  for (size_t i = 0; i < moses.size(); ++i) {
    EXPECT_THAT(moses[i], StartsWith(concat(i / 2, " ||| ", texts[i], " ||| F0= ")));
    EXPECT_THAT(aligned[i], StartsWith(moses[i]));
    if (i / 2 == 1) continue;
    const Json translation = Json::parse(objects[i / 2]).at("translations").at(i % 2);
    double log_probability = 0, score = 0;
    ASSERT_EQ(std::sscanf(moses[i].c_str() + moses[i].rfind(" F0="), " F0= %lf ||| %lf",
                          &log_probability, &score),
              2);
    EXPECT_NEAR(log_probability, translation.at("log_probability").get<double>(), 1e-6);
    EXPECT_NEAR(score, translation.at("score").get<double>(), 1e-6);
  }
}

TEST_F(TextBordersTest, AnNBestListHoldsEachTextOnce) {
  const Lines lines = answers(
      concat("translate --beam-size 40 --n-best 12 --model ", trained("translation")), "ba ce\n");
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 12u);
}

TEST_F(TextBordersTest, SamplingGivesSeveralAnswers) {
  const std::string sample =
      concat("translate --do-sample --temperature 2 --seed 3 --model ", trained("translation"));
  const std::string input = "ba ce\n\nlo mu ha\n";
  const Lines three = answers(sample + " --n-best 3", input);
  ASSERT_EQ(three.size(), 9u);
  EXPECT_EQ(answers(sample + " --n-best 3 --batch-size 1 --threads 2", input), three)
      << "draws belong to lines";
  const Lines one = answers(sample, input);
  for (const size_t line : {0, 2}) {
    const auto first = three.begin() + 3 * static_cast<std::ptrdiff_t>(line);
    EXPECT_EQ(std::count(first, first + 3, one[line]), 1) << "the first draw is that of a line";
    EXPECT_EQ(std::set<std::string>(first, first + 3).size(), 3u) << "they are drawn anew";
  }
  const Json found = Json::parse(answers(sample + " --n-best 3 --detail jsonl", input)[0]);
  EXPECT_GE(found["translations"][0]["score"], found["translations"][2]["score"]);
  EXPECT_EQ(
      answers(concat("generate --do-sample --n-best 3 --model ", trained("clm")), input).size(),
      9u);
  const auto outcome =
      folder_->run("translate --n-best 3 --beam-size 2 --model translation", "ba\n");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("expected 1 <= --n-best <= --beam-size, got 3 and 2"));
}

// What is cut

TEST_F(TextBordersTest, TranslationsAtTheLengthLimitAreNamed) {
  const std::string model = " --model " + two_lines();
  const auto cut = folder_->run("translate" + model, "ba\n\nce di\n");  // the config's 4 tokens
  EXPECT_EQ(cut.code, 0);
  EXPECT_EQ(lines_of(cut.out), (Lines{"a\\nb", "", "a\\nb"}));
  EXPECT_THAT(cut.err,
              HasSubstr("warning: 2 translations are cut at the length limit (lines 1, 3)"));
  const auto finished = [&](const std::string& options) {
    const Lines lines = answers("translate --detail jsonl" + model + options, "ba\n");
    return Json::parse(lines.at(0)).at("translations")[0].at("finished").get<bool>();
  };
  for (const char* search : {"", " --beam-size 1", " --do-sample --temperature 0.01"}) {
    EXPECT_FALSE(finished(search)) << search;
    EXPECT_TRUE(finished(concat(search, " --max-new-tokens 7"))) << search;
    // At the limit the model itself ends the text: 5 characters and the end.
    EXPECT_TRUE(finished(concat(search, " --max-new-tokens 6"))) << search;
  }
  EXPECT_THAT(folder_->run("translate --max-new-tokens 6" + model, "ba\n").err,
              Not(HasSubstr("cut")));
  // The training tells of targets that no translation can be as long as, and how many it cut.
  EXPECT_THAT(log(),
              HasSubstr("5 of 5 training targets (100 %) are longer than translations may "
                        "be, which are cut there: change generation.max_new_tokens: 4 into 6"));
  EXPECT_THAT(log(), HasSubstr("cut_at_limit 5"));
}

TEST_F(TextBordersTest, LongSourcesAreCutWithAWarning) {
  const std::string model = " --model " + trained("translation");
  const auto outcome =
      folder_->run("translate --max-source-length 3" + model, "ba\nba ce di fo gu\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("warning: line 2 of "));
  EXPECT_THAT(outcome.err, HasSubstr(" tokens is cut to its first 3."));
  std::string longest;
  for (int i = 0; i < 3000; ++i) longest += "ba ";
  EXPECT_THAT(folder_->run("translate --beam-size 1 --max-new-tokens 2" + model, longest).err,
              HasSubstr(" tokens is cut to its first 2048."));
}

// What is unknown

TEST_F(TextBordersTest, UnknownCharactersAreCounted) {
  two_lines();
  // " Ж" has a space that the other sources have, too: 5 of 32 characters.
  EXPECT_THAT(log(), HasSubstr("unknown: 15.6 % of the source's tokens (first "));
  EXPECT_THAT(log(), HasSubstr("validation data: 15.6 % of the source's tokens (first "));
  EXPECT_THAT(log(), HasSubstr("strange.jsonl:1) are unknown to the vocabulary"));
  const auto outcome = folder_->run("translate --model two_lines", "ba\nba Ж\n");
  EXPECT_THAT(outcome.err, HasSubstr("warning: 16.7 % of the tokens that were read (first line 2) "
                                     "is unknown to the vocabulary."));
}

TEST_F(TextBordersTest, APrefixThatCannotBeWrittenIsRefused) {
  folder_->write("prefixes", "a\nb Ж c\n");
  const auto outcome =
      folder_->run("translate --prefix prefixes --model " + two_lines(), "ba\nce\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("error: [translate] the prefix of line 2 must be text that the model can "
                        "write, got 'b Ж c': the vocabulary has no 'Ж'."));
  folder_->write("prefixes", "ba Çe\n");
  EXPECT_THAT(
      folder_->run("translate --prefix prefixes --model " + trained("translation"), "ba\n").err,
      HasSubstr("the prefix of line 1 must be text that the model can write, got 'ba Çe': "
                "the vocabulary has no 'Ç'."));
}

// What is ill-formed

TEST_F(TextBordersTest, AnIllFormedLineCostsOnlyItself) {
  const std::string model = " --model " + trained("translation");
  const std::string input = "ba ce\nba \xFF\nlo\n\xC3\n";
  const Lines good = answers("translate" + model, "ba ce\n\nlo\n\n");
  const auto outcome = folder_->run("translate" + model, input);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(lines_of(outcome.out), good);
  EXPECT_THAT(outcome.err, HasSubstr("warning: 2 lines are not UTF-8 (first line 2 at byte 4): the "
                                     "answer is that of an empty line."));
  const auto replaced = folder_->run("translate --ill-formed replace" + model, input);
  EXPECT_EQ(replaced.code, 0);
  EXPECT_NE(lines_of(replaced.out).at(1), "");
  const auto refused = folder_->run("translate --ill-formed error" + model, input);
  EXPECT_EQ(refused.code, 3);
  EXPECT_EQ(lines_of(refused.out), Lines{good[0]});
  EXPECT_THAT(refused.err, HasSubstr("[translate] line 2 is not UTF-8 at byte 4"));
  // No score is that of a text that is none.
  const Lines scores = answers("score --target in --model " + trained("clm"), "ba\n\xFF\nba\n");
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_EQ(scores[1], "");
  EXPECT_EQ(scores[0], scores[2]);
}

TEST_F(TextBordersTest, AByteOrderMarkIsNoText) {
  const std::string command = "translate --detail jsonl --max-new-tokens 20 --model " + two_lines();
  EXPECT_EQ(answers(command, "\uFEFFba\nce\n"), answers(command, "ba\nce\n"));
  EXPECT_EQ(answers(command + " --input in", "\uFEFFba\nce\n"), answers(command, "ba\nce\n"));
}

// Places

TEST_F(TextBordersTest, AlignmentsCountTheWordsOfTheLine) {
  // Each is one word, or two, to whoever wrote it; normalisation puts spaces inside.
  const std::string model = " --model " + trained("translation");
  for (const char* const line : {"ba\u00B4ce di", "ba\u200Bce di", "ba\u00A0ce\tdi",
                                 "ba\u00B8ce  di", "ba\u00AFce \t di ", "ba\u200Ece di"}) {
    const Json found = Json::parse(
        answers("translate --alignments - --beam-size 4 --n-best 4 --detail jsonl" + model,
                concat(line, '\n'))
            .at(0));
    for (const Json& translation : found.at("translations")) {
      for (const Json& pair : translation.at("alignment"))
        EXPECT_LT(pair.at(0).get<int>(), 2) << line;
    }
  }
}

}  // namespace
}  // namespace tapestry
