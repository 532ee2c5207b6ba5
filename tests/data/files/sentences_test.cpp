#include "data/files/sentences.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> sentences(const std::string& language, const std::string& text) {
  SentenceSplitter splitter(language);
  std::vector<std::string> found;
  std::string together;
  for (const SentencePart& part : splitter.split(text)) {
    found.emplace_back(part.text);
    together += std::string(part.text) + std::string(part.gap);
  }
  // Nothing is lost but white space in front.
  EXPECT_EQ(together, text.substr(std::min(text.find_first_not_of(" \t"), text.size())));
  return found;
}

TEST(Sentences, EndWithTheirMarks) {
  EXPECT_THAT(sentences("en", "  He left...  Really? Yes! It cost $3.5 million. "),
              ElementsAre("He left...", "Really?", "Yes!", "It cost $3.5 million."));
  EXPECT_THAT(sentences("ja", "これは文です。次の文です！三つ目？はい。"),
              ElementsAre("これは文です。", "次の文です！", "三つ目？", "はい。"));
  EXPECT_THAT(sentences("en", "no mark at the end"), ElementsAre("no mark at the end"));
  EXPECT_THAT(sentences("en", ""), IsEmpty());
  EXPECT_THAT(sentences("en", " \t "), IsEmpty());
}

TEST(Sentences, GoOnBehindAbbreviations) {
  EXPECT_THAT(sentences("en",
                        "Dr. Smith met Mr. Jones in St. Louis. See e.g. Fig. 3. J. K. "
                        "Rowling wrote it (cf. Rev. Green)."),
              ElementsAre("Dr. Smith met Mr. Jones in St. Louis.", "See e.g. Fig. 3.",
                          "J. K. Rowling wrote it (cf. Rev. Green)."));
  EXPECT_THAT(sentences("de",
                        "Am 3. Oktober kam Prof. Dr. Müller z. B. aus Bonn. Bzw. Köln. Das "
                        "war 1990. Er blieb."),
              ElementsAre("Am 3. Oktober kam Prof. Dr. Müller z. B. aus Bonn.", "Bzw. Köln.",
                          "Das war 1990.", "Er blieb."));
  // In English a number may end a sentence.
  EXPECT_THAT(sentences("en", "He was 3. October came."),
              ElementsAre("He was 3.", "October came."));
  // A language without a list has Unicode's rules.
  EXPECT_THAT(sentences("eo", "Jes. Ne."), ElementsAre("Jes.", "Ne."));
}

TEST(Sentences, OfALanguageThatDoesNotExist) {
  EXPECT_THAT(error_of(ErrorKind::kConfig, [] { SentenceSplitter("xq"); }),
              HasSubstr("expected a code of a language such as en or de, got 'xq'"));
}

}  // namespace
}  // namespace tapestry
