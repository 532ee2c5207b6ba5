#include "data/corpora/ding.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Phrases = std::vector<std::pair<std::string, std::string>>;

Phrases parse(const std::string& line) {
  Phrases phrases;
  Drop reason{};
  EXPECT_TRUE(parse_ding_line(line, phrases, reason)) << line;
  return phrases;
}

Drop reject(const std::string& line) {
  Phrases phrases;
  Drop reason{};
  EXPECT_FALSE(parse_ding_line(line, phrases, reason)) << line;
  EXPECT_TRUE(phrases.empty());
  return reason;
}

TEST(Ding, PairsPartsInOrder) {
  EXPECT_THAT(parse("Hund {m} | der große Hund | zwei Hunde :: dog | the big dog | two dogs"),
              ElementsAre(Pair("Hund", "dog"), Pair("der große Hund", "the big dog"),
                          Pair("zwei Hunde", "two dogs")));
}

TEST(Ding, KeepsTheFirstSynonym) {
  EXPECT_THAT(parse("ein Haus; das Haus {n}|Häuser {pl} :: a house; the home; hut | houses; homes"),
              ElementsAre(Pair("ein Haus", "a house"), Pair("Häuser", "houses")));
}

TEST(Ding, RemovesAnnotations) {
  EXPECT_THAT(parse("sehr  schnell {adv; adj} (im [alten] Sinn | auch neu) [ugs.] <flott> "
                    ":: very fast [Br.] {quick; quicker} (of things)"),
              ElementsAre(Pair("sehr schnell", "very fast")));
  EXPECT_THAT(parse("(sich) etw. an|sehen :: to (carefully) look|at sth."),
              ElementsAre(Pair("etw. an", "to look"), Pair("sehen", "at sth.")));
}

TEST(Ding, RemovesAbbreviationsButNotAlternatives) {
  EXPECT_THAT(parse("alte Aktiengesellschaft {f} /AG/; Firma :: old company /PLC, plc/"),
              ElementsAre(Pair("alte Aktiengesellschaft", "old company")));
  EXPECT_THAT(parse("jdn./etw. sehen :: to see sb./sth. or / and more"),
              ElementsAre(Pair("jdn./etw. sehen", "to see sb./sth. or / and more")));
}

TEST(Ding, RejectsWhatDoesNotAlign) {
  EXPECT_EQ(reject("ein Haus | zwei :: a house"), Drop::kUnaligned);
  EXPECT_EQ(reject("ein Haus, a house"), Drop::kMalformed);
  EXPECT_EQ(reject("a :: b :: c"), Drop::kMalformed);
  EXPECT_EQ(reject("ein Haus (neu :: a house"), Drop::kMalformed);
  EXPECT_EQ(reject("ein Haus (neu] :: a house"), Drop::kMalformed);
}

TEST(Ding, CorpusCountsAndTurns) {
  TempFolder folder;
  CorpusSpec spec;
  spec.ding = folder.write("de-en",
                           "# comment :: not a line\n"
                           "Hund {m} | der Hund :: dog | the dog\n"
                           "Katze {f} | eine Katze | :: cat | a cat | to be\n"
                           "kaputt\n"
                           "\n"
                           "der Hund :: the dog\n"
                           "der Hund :: the hound\n"
                           "ein | zwei :: one\n");
  const auto read = [&](FilterCounts& counts) {
    const auto reader = open_corpus(spec);
    Phrases phrases;
    for (TextPair pair; reader->next(pair);) phrases.emplace_back(pair.source, pair.target);
    counts = reader->counts();
    return phrases;
  };
  FilterCounts counts;
  EXPECT_THAT(read(counts), ElementsAre(Pair("der Hund", "the dog"), Pair("eine Katze", "a cat"),
                                        Pair("der Hund", "the hound")));
  EXPECT_EQ(counts.read, 10);
  EXPECT_EQ(counts.kept, 3);
  EXPECT_EQ(counts.of(Drop::kTooShort), 2);
  EXPECT_EQ(counts.of(Drop::kEmpty), 2);
  EXPECT_EQ(counts.of(Drop::kMalformed), 1);
  EXPECT_EQ(counts.of(Drop::kUnaligned), 1);
  EXPECT_EQ(counts.of(Drop::kDuplicate), 1);
  EXPECT_EQ(counts.first[static_cast<size_t>(Drop::kDuplicate)], spec.ding + ":6");
  spec.direction = "en-de";
  EXPECT_THAT(read(counts), ElementsAre(Pair("the dog", "der Hund"), Pair("a cat", "eine Katze"),
                                        Pair("the hound", "der Hund")));
  spec.direction = "de-en";
  spec.min_words = 1;
  EXPECT_THAT(read(counts),
              ElementsAre(Pair("Hund", "dog"), Pair("der Hund", "the dog"), Pair("Katze", "cat"),
                          Pair("eine Katze", "a cat"), Pair("der Hund", "the hound")));
  EXPECT_EQ(counts.of(Drop::kTooShort), 0);
  spec.min_words = 3;
  EXPECT_THAT(read(counts), ElementsAre());
}

}  // namespace
}  // namespace tapestry
