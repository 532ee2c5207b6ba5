#include "data/scores/answer_scores.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/paths.h"

namespace tapestry {
namespace {

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return parts;
}

TEST(AnswerScores, AreThoseOfTheScript) {
  std::ifstream file(project_file("tests/fixtures/squad_scores.tsv"));
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    SCOPED_TRACE(line);
    const std::vector<std::string> fields = split(line, "\t");
    ASSERT_EQ(fields.size(), 5u);
    std::vector<std::string> references;
    if (!fields[1].empty()) references = split(fields[1], " | ");
    EXPECT_EQ(normalize_answer(fields[0]), fields[2]);
    EXPECT_EQ(exact_match(fields[0], references), std::stod(fields[3]));
    EXPECT_NEAR(answer_f1(fields[0], references), std::stod(fields[4]), 1e-11);
  }
  EXPECT_GT(cases, 20);
}

}  // namespace
}  // namespace tapestry
