// Glossaries and texts that are kept: where they are found in a line.
#include "data/lexicon/terms.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Texts = std::vector<std::string>;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// "source=target" of each.
Texts shown(std::string_view line, const std::vector<RequiredText>& found) {
  Texts texts;
  for (const RequiredText& text : found) {
    texts.push_back(std::string(line.substr(text.begin, text.end - text.begin)) + "=" + text.text);
  }
  return texts;
}

Texts kept(const std::vector<std::string>& kinds, std::string_view line) {
  Texts texts;
  for (const RequiredText& text : without_overlaps(KeptTexts(kinds).find(line))) {
    EXPECT_EQ(line.substr(text.begin, text.end - text.begin), text.text);
    texts.push_back(text.text);
  }
  return texts;
}

TEST(Terms, AreWholeWordsTheLongestFirst) {
  const TempFolder folder;
  const Terms terms(folder.write("terms.tsv",
                                 "engine\tMotor\n search engine \t Suchmaschine\r\n"
                                 "AIDS\tAIDS\n.NET\t.NET\nÖl\toil\nC++\tC++\n"));
  const auto find = [&](std::string_view line) { return shown(line, terms.find(line)); };
  EXPECT_THAT(find("the engine of a search engine"),
              ElementsAre("engine=Motor", "search engine=Suchmaschine"));
  EXPECT_THAT(find("Engine, engines, re-engine and engine_2"),
              ElementsAre("Engine=Motor", "engine=Motor"));
  EXPECT_THAT(find("ENGINE aids"), IsEmpty()) << "case counts but for the first letter";
  EXPECT_THAT(find("in .NET or C++? Öl, ölig"), ElementsAre(".NET=.NET", "C++=C++", "Öl=oil"));
  EXPECT_THAT(find(""), IsEmpty());
  EXPECT_EQ(annotated("An engine.", terms.find("An engine.")),
            "An <term> engine <means> Motor </term>.");
}

TEST(Terms, SayWhichLineIsWrong) {
  const TempFolder folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.write("bad.tsv", text);
    return message_of([&] { Terms{path}; });
  };
  EXPECT_THAT(error("a\tb\nno tab\n"), HasSubstr("bad.tsv:2: expected a source text, a tab"));
  EXPECT_THAT(error("a\tb\tc\n"), HasSubstr("bad.tsv:1"));
  EXPECT_THAT(error("a\t \n"), HasSubstr("bad.tsv:1"));
  EXPECT_THAT(error("a\tb\xFF\n"), HasSubstr("bad.tsv:1"));
  EXPECT_THAT(error("a\tb\nc\td\n a\te\n"),
              ContainsRegex("bad.tsv:3: 'a' stands in .*bad.tsv:1, too."));
}

TEST(KeptTexts, AreFoundByTheirKinds) {
  EXPECT_THAT(kept({"urls"}, "See https://a.de/x?y=1&z=(2), or (www.b.org/c). http:// no"),
              ElementsAre("https://a.de/x?y=1&z=(2", "www.b.org/c"));
  EXPECT_THAT(kept({"emails"}, "Ask jürgen.o+x@mail.example.org, not @me or a@b"),
              ElementsAre("jürgen.o+x@mail.example.org"));
  EXPECT_THAT(kept({"numbers"}, "1,234.5 at 12:30 on 2026-11-28; 7 x4 4x 50% v2.0 3."),
              ElementsAre("1,234.5", "12:30", "2026-11-28", "7", "50", "3"));
  EXPECT_THAT(kept({"placeholders"}, "{name} ${HOME} {{ x }} {{x.y}} %s %1$d %-5.2f 100% sure {}"),
              ElementsAre("{name}", "${HOME}", "{{ x }}", "{{x.y}}", "%s", "%1$d", "%-5.2f", "{}"));
  EXPECT_THAT(kept({"numbers", "urls", "/[A-Z]{3}-\\d+/"}, "ABC-12 https://x.de/34 56"),
              ElementsAre("ABC-12", "https://x.de/34", "56"));
  EXPECT_THAT(kept({}, "12"), IsEmpty());
  EXPECT_THAT(message_of([] { KeptTexts({"dates"}); }),
              HasSubstr("expected one of urls, emails, numbers, placeholders or a regular"));
  EXPECT_THAT(message_of([] { KeptTexts({"/(/"}); }), HasSubstr("expected a regular expression"));
}

TEST(RequiredTexts, OfThoseThatOverlapTheLongestStays) {
  const RequiredText term{5, 12, "x"};
  EXPECT_THAT(without_overlaps({term, {0, 3, "a"}, {11, 14, "b"}, {12, 15, "c"}, {5, 12, "y"}}),
              ElementsAre(RequiredText{0, 3, "a"}, term, RequiredText{12, 15, "c"}));
  // A term inside an address must not change it.
  const RequiredText address{2, 20, "https://x"};
  EXPECT_THAT(without_overlaps({term, address}), ElementsAre(address));
}

}  // namespace
}  // namespace tapestry
