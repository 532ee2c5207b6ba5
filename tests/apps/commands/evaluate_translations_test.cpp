// `tapestry evaluate --hypothesis`: files, options and what it prints. That the figures are
// sacreBLEU's is held by tests/data/scores and by tests/bench/scores.py.
#include <gmock/gmock.h>

#include "core/build_info.h"
#include "tests/apps/tiny_runs.h"

namespace tapestry {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class EvaluateTranslationsTest : public testing::Test {
 protected:
  EvaluateTranslationsTest() {
    folder_.write("a", "the cat sat on the mat\nhello world\n\na big dog barks\n");
    folder_.write("b", "a cat sat on a mat\nhello you\nx\na big dog barks\n");
    folder_.write("one", "the cat sat on a mat\nHello world\ny\na dog barks\n");
    folder_.write("two", "a cat sat on the mat\n\nx\na big dog barks loudly\n");
  }

  json json_of(const std::string& options) const {
    return json::parse(folder_.output("evaluate --json " + options));
  }
  std::string refusal(const std::string& options) const {
    const TinyRunFolder::Outcome outcome = folder_.run("evaluate " + options);
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  }

  TinyRunFolder folder_{"evaluate-translations"};
};

TEST_F(EvaluateTranslationsTest, SeveralReferences) {
  const json both = json_of("--hypothesis a --reference one --reference two --metrics bleu,ter");
  EXPECT_THAT(both["bleu"]["signature"].get<std::string>(),
              StartsWith("nrefs:2|case:mixed|eff:no|"));
  EXPECT_GT(both["bleu"]["score"], json_of("--hypothesis a --reference one")["bleu"]["score"]);
  folder_.write("tabs",
                "the cat sat on a mat\ta cat sat on the mat\nHello world\t\ny\tx\n"
                "a dog barks\ta big dog barks loudly\n");
  EXPECT_EQ(json_of("--hypothesis a --reference tabs --num-refs 2 --metrics bleu,ter"), both);
  const json some =
      json_of("--hypothesis a --reference one two --optional-references --metrics bleu,ter");
  EXPECT_THAT(some["bleu"]["signature"].get<std::string>(), StartsWith("nrefs:var|"));
  EXPECT_EQ(both["ter"]["edits"], some["ter"]["edits"]);
  EXPECT_GT(some["ter"]["reference_length"], both["ter"]["reference_length"]);
}

TEST_F(EvaluateTranslationsTest, FilesThatDoNotFit) {
  folder_.write("short", "x\n");
  const auto outcome = folder_.run("evaluate --hypothesis a --reference one short");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("expected as many lines in all references, got 4 in one and 1 "
                                     "in short."));
  const auto tabs = folder_.run("evaluate --hypothesis a --reference one --num-refs 2");
  EXPECT_EQ(tabs.code, 3);
  EXPECT_THAT(tabs.err, HasSubstr("one:1: expected 2 references between tabs, got 1."));
  const auto none = folder_.run("evaluate --hypothesis a --reference two --optional-references");
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err,
              HasSubstr("expected a reference for every sentence, got none for number 2"));
}

// Python's utf-8 keeps U+FEFF, so it is a part of the first word there.
TEST_F(EvaluateTranslationsTest, AByteOrderMarkIsPartOfTheFirstWord) {
  folder_.write("marked", "\xEF\xBB\xBFone two three four five\n");
  folder_.write("plain", "one two three four five\r\n");
  EXPECT_NEAR(json_of("--hypothesis marked --reference plain")["bleu"]["precisions"][0], 80, 1e-9);
  EXPECT_NEAR(json_of("--hypothesis marked --reference marked")["bleu"]["score"], 100, 1e-9);
}

TEST_F(EvaluateTranslationsTest, SentencesHaveALineEach) {
  const std::string text = folder_.output(
      "evaluate --hypothesis a --reference one --metrics bleu,chrf++ --sentence-level --width 1");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, StartsWith(concat("BLEU|nrefs:1|case:mixed|eff:yes|tok:13a|smooth:exp|version:"
                                      "tapestry-",
                                      build_info().version, " = ")));
  EXPECT_THAT(text, HasSubstr("\tchrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|"));
  EXPECT_THAT(text, HasSubstr(" = 0.0 0.0/0.0/0.0/0.0 (BP = 0.000 ratio = 0.000 hyp_len = 0 "
                              "ref_len = 1)\t"));
  const std::string lines = folder_.output(
      "evaluate --hypothesis a --reference one --metrics ter --sentence-level --json");
  std::istringstream stream(lines);
  std::vector<double> scores;
  for (std::string line; std::getline(stream, line);) {
    const json row = json::parse(line);
    EXPECT_EQ(row["line"], scores.size() + 1);
    scores.push_back(row["ter"]["score"]);
  }
  // One word of six replaced; equal in lower case; nothing for one word; one word too many for
  // three.
  EXPECT_THAT(scores,
              testing::Pointwise(testing::DoubleNear(1e-9), {100. / 6, 0., 100., 100. / 3}));
}

TEST_F(EvaluateTranslationsTest, SystemsStandInATable) {
  EXPECT_EQ(folder_.output("evaluate --hypothesis one a --reference one --metrics bleu,chrf"),
            concat("system  BLEU    chrF2\n"
                   "one     100.00  100.00\n"
                   "a       40.82   76.81\n\n"
                   "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:tapestry-",
                   build_info().version,
                   "\nchrF2|nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:tapestry-",
                   build_info().version, "\n"));
  const std::string tested = folder_.output(
      "evaluate --hypothesis a b --reference one two --metrics ter --paired-bs --paired-bs-n 50");
  EXPECT_THAT(tested,
              testing::ContainsRegex("^system  TER +p\na +25\\.00 \\(.+ ± .+\\)\nb +25\\.00 "));
  EXPECT_THAT(tested, HasSubstr("\np: how probable a difference"));
  EXPECT_THAT(tested, HasSubstr("\nTER|nrefs:2|bs:50|seed:12345|case:lc|tok:tercom|"));
}

TEST_F(EvaluateTranslationsTest, PairedTestsAsJson) {
  const json ar = json_of(
      "--hypothesis a b a --reference one --metrics bleu,chrf++ --paired-ar --paired-ar-n 99 "
      "--seed 7");
  ASSERT_EQ(ar["systems"].size(), 2u);  // the baseline is not its own rival
  EXPECT_EQ(ar["systems"][0]["name"], "a");
  EXPECT_FALSE(ar["systems"][0]["bleu"].contains("p_value"));
  EXPECT_GT(ar["systems"][1]["chrf++"]["p_value"], 0.0);
  EXPECT_FALSE(ar["systems"][1]["bleu"].contains("mean"));
  EXPECT_THAT(ar["signatures"]["bleu"].get<std::string>(),
              StartsWith("nrefs:1|ar:99|seed:7|case:"));
  EXPECT_EQ(ar["sentences"], 4);
  const json bs = json_of(
      "--hypothesis a b --reference one --metrics bleu --paired-bs --paired-bs-n 99 --threads 1");
  EXPECT_EQ(bs, json_of("--hypothesis a b --reference one --metrics bleu --paired-bs "
                        "--paired-bs-n 99 --threads 4"));
  const json one = json_of("--hypothesis a --reference one --confidence --confidence-n 99");
  EXPECT_NEAR(bs["systems"][0]["bleu"]["mean"], one["bleu"]["mean"], 1e-9);
  EXPECT_EQ(bs["systems"][0]["bleu"]["interval"], one["bleu"]["interval"]);
}

TEST_F(EvaluateTranslationsTest, HypothesesThatLookTokenizedAreTold) {
  std::string tokenized;
  for (int i = 0; i < 100; ++i) tokenized += "a b .\n";
  folder_.write("tokenized", tokenized);
  const std::string both = "evaluate --hypothesis tokenized --reference tokenized ";
  EXPECT_THAT(folder_.run(both).err, StartsWith("warning: 100 lines of tokenized end in ' .': "));
  EXPECT_EQ(folder_.run(both + "--force").err, "");
  EXPECT_EQ(folder_.run(both + "--metrics ter").err, "");
}

TEST_F(EvaluateTranslationsTest, WhatDoesNotGoTogetherIsRefused) {
  const std::string files = "--hypothesis a --reference one ";
  EXPECT_THAT(refusal(files + "--tokenize ja-mecab"), HasSubstr("needs MeCab and its dictionary"));
  EXPECT_THAT(
      refusal(files + "--tokenize flores200"),
      HasSubstr("flores200 needs the file of a SentencePiece model (--spm-model), got none; "
                "that of FLORES must be downloaded first."));
  EXPECT_THAT(refusal(files + "--spm-model x"), HasSubstr("13a needs no model, got 'x'."));
  EXPECT_THAT(refusal(files + "--smooth-value 1"), HasSubstr("has an effect with floor and add-k"));
  EXPECT_THAT(refusal(files + "--paired-bs"), HasSubstr("paired tests need several systems"));
  EXPECT_THAT(refusal(files + "--hypothesis b --sentence-level"), HasSubstr("is of one system"));
  EXPECT_THAT(refusal(files + "--hypothesis b --confidence"), HasSubstr("is of one system"));
  EXPECT_THAT(refusal(files + "--hypothesis a"), HasSubstr("every system once, got 'a'."));
  EXPECT_THAT(refusal(files + "--reference two --metrics rouge"), HasSubstr("one reference file"));
  refusal(files + "--paired-bs --paired-ar");
  refusal(files + "--chrf-char-order 0");
}

}  // namespace
}  // namespace tapestry
