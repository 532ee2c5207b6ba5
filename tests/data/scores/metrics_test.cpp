// Expected values: sacreBLEU's own, tests/fixtures/make_sacrebleu.py.
#include <gmock/gmock.h>

#include <fstream>

#include "data/files/text.h"
#include "data/scores/bleu.h"
#include "data/scores/chrf.h"
#include "data/scores/rouge.h"
#include "data/scores/words.h"
#include "tests/data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

std::vector<std::string> read_lines(const std::string& name) {
  LineReader reader(project_file("tests/fixtures/metrics/" + name));
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Our own name, not sacreBLEU's version.
std::string version() {
  const std::string signature = corpus_bleu({"a"}, {"a"}).signature;
  const std::string version = signature.substr(signature.rfind(':') + 1);
  EXPECT_THAT(version, testing::MatchesRegex("tapestry-[0-9]+\\.[0-9]+\\.[0-9]+"));
  return version;
}

struct Answer {
  double score;
  std::string line;
};

Answer measure(const std::string& metric, const std::vector<std::string>& hypotheses,
               const std::vector<std::string>& references) {
  const auto words = split(metric, ' ');
  const bool lowercase = words[2] == "lc";
  if (words[0] == "bleu") {
    const auto bleu =
        corpus_bleu(hypotheses, references, {.tokenize = words[1], .lowercase = lowercase});
    return {bleu.score, bleu.str()};
  }
  ChrfOptions options;
  options.word_order = std::stoi(words[1]);
  options.lowercase = lowercase;
  const auto chrf = corpus_chrf(hypotheses, references, options);
  return {chrf.score, chrf.str()};
}

TEST(Metrics, EqualSacrebleuOnEverySystem) {
  const auto references = read_lines("reference.txt");
  const auto rows = read_lines("expected.tsv");
  ASSERT_EQ(rows.size(), 48u);
  for (const std::string& row : rows) {
    SCOPED_TRACE(row);
    const auto columns = split(row, '\t');
    const Answer answer = measure(columns[1], read_lines(columns[0] + ".txt"), references);
    EXPECT_NEAR(answer.score, std::stod(columns[2]), 1e-11);
    std::string line = columns[3];
    line.replace(line.find("VERSION"), 7, version());
    EXPECT_EQ(answer.line, line);
  }
}

// rouge-score's own: tests/fixtures/rouge.py.
TEST(Metrics, RougeEqualsThePackageOnEveryPair) {
  const auto rows = read_lines("rouge.tsv");
  ASSERT_EQ(rows.size(), 356u);
  std::vector<std::string> hypotheses, references;
  std::vector<double> sums(9, 0);
  const auto expect_near = [](const RougeScore& rouge, const double* expected, double scale) {
    for (const auto& part : {rouge.rouge_1, rouge.rouge_2, rouge.rouge_l}) {
      for (const double value : {part.precision, part.recall, part.f}) {
        EXPECT_NEAR(value, 100 * *expected++ / scale, 1e-11);
      }
    }
  };
  for (const std::string& row : rows) {
    SCOPED_TRACE(row);
    const auto columns = split(row, '\t');
    ASSERT_EQ(columns.size(), 11u);
    hypotheses.push_back(columns[0]);
    references.push_back(columns[1]);
    std::vector<double> expected;
    for (size_t i = 2; i < columns.size(); ++i) {
      expected.push_back(std::stod(columns[i]));
      sums[i - 2] += expected.back();
    }
    expect_near(corpus_rouge({columns[0]}, {columns[1]}), expected.data(), 1);
  }
  const RougeScore all = corpus_rouge(hypotheses, references);
  EXPECT_EQ(all.sentences, 356);
  expect_near(all, sums.data(), 356);
}

TEST(Metrics, RougeIsOneLine) {
  const RougeScore rouge = corpus_rouge({"the cat sat"}, {"the cat"});
  EXPECT_EQ(rouge.str(), "ROUGE|nrefs:1|case:lc|stem:no|version:" + version() +
                             " = 1: 80.00 (P = 66.67 R = 100.00) 2: 66.67 (P = 50.00 R = 100.00) "
                             "L: 80.00 (P = 66.67 R = 100.00)");
  EXPECT_EQ(error_of(ErrorKind::kData, [] { corpus_rouge({"a"}, {}); }),
            "[rouge] expected as many hypotheses as references, got 1 and 0.");
}

TEST(Metrics, TokenizeAsMteval13a) {
  std::vector<std::string> lines = read_lines("reference.txt");
  for (const std::string& line : read_lines("close.txt")) lines.push_back(line);
  const auto expected = read_lines("tokenized_13a.txt");
  ASSERT_EQ(lines.size(), expected.size());
  const WordRule::Split split = word_rule("13a", "").make("");
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(words_of_line(split, lines[i]), expected[i]);
  }
}

TEST(Metrics, ReportCountsAndBrevityPenalty) {
  const auto bleu = corpus_bleu({"a b c d", "e"}, {"a b c d e f", "e"}, {.tokenize = "none"});
  EXPECT_EQ(bleu.sentences, 2);
  EXPECT_EQ(bleu.hypothesis_tokens, 5);
  EXPECT_EQ(bleu.reference_tokens, 7);
  EXPECT_EQ(bleu.correct, (std::array<int64_t, 4>{5, 3, 2, 1}));
  EXPECT_EQ(bleu.total, (std::array<int64_t, 4>{5, 3, 2, 1}));
  EXPECT_DOUBLE_EQ(bleu.brevity_penalty, std::exp(1 - 7.0 / 5.0));
  EXPECT_NEAR(bleu.score, 100 * std::exp(1 - 7.0 / 5.0), 1e-12);
}

TEST(Metrics, AreZeroWhereNoSentenceIsLongEnough) {
  // Orders 3 and 4 have no n-gram at all: sacreBLEU's score is 0, not smoothed.
  const auto bleu = corpus_bleu({"a b"}, {"a b"});
  EXPECT_EQ(bleu.score, 0);
  EXPECT_EQ(bleu.precisions[1], 100);
  EXPECT_EQ(bleu.precisions[2], 0);
}

TEST(Metrics, RejectOtherNumbersOfLines) {
  EXPECT_EQ(error_of(ErrorKind::kData,
                     [] {
                       corpus_bleu({"a"}, {"a", "b"});
                     }),
            "[bleu] expected as many hypotheses as references, got 1 and 2.");
  EXPECT_EQ(error_of(ErrorKind::kData, [] { corpus_chrf({}, {}); }),
            "[chrf] expected lines to compare, got none.");
  EXPECT_THAT(error_of(ErrorKind::kConfig, [] { corpus_bleu({"a"}, {"a"}, {.tokenize = "14b"}); }),
              testing::HasSubstr("must be one of 13a, none, intl, char, zh, spm, flores101, "
                                 "flores200, spBLEU-1K, got '14b'."));
}

TEST(Metrics, TakeIllFormedUtf8AsReplacementCharacters) {
  EXPECT_GT(corpus_chrf({"a\xFFz and more"}, {"a\xFEz and more"}).score, 99.9);
}

}  // namespace
}  // namespace tapestry
