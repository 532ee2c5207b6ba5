#include "data/corpora/cleaning.h"

#include <gmock/gmock.h>

#include "data/corpora/corpus.h"
#include "data/corpora/shared_pairs.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CleaningTest : public testing::Test {
 protected:
  CorpusSpec spec(const std::string& name, const std::string& source, const std::string& target) {
    CorpusSpec spec;
    spec.source = folder_.write(name + ".en", source);
    spec.target = folder_.write(name + ".de", target);
    spec.clean = options_;
    return spec;
  }
  // The sources that are kept; counts_ has the drops.
  std::vector<std::string> kept(const std::string& source, const std::string& target) {
    const auto reader = open_corpus(spec("train", source, target));
    std::vector<std::string> sources;
    for (TextPair pair; reader->next(pair);) sources.push_back(pair.source);
    counts_ = reader->counts();
    return sources;
  }

  TempFolder folder_;
  CleaningOptions options_;
  FilterCounts counts_;
};

TEST_F(CleaningTest, WithoutOptionsNothingIsLeftOut) {
  EXPECT_FALSE(options_.is_on());
  EXPECT_THAT(kept("a\na\nb\n", "a\na\nxxxxxxxxxxxxxxxxxxxx\n"), ElementsAre("a", "a", "b"));
  EXPECT_EQ(counts_.total_dropped(), 0);
}

TEST_F(CleaningTest, CountsCharactersOfBothSides) {
  options_.max_ratio = 2;
  // Four characters of eight bytes are as long as four letters.
  EXPECT_THAT(kept("ab\nab\nabcd\nabcde\nдаша\n", "abcd\nabcde\nab\nab\nabcdefgh\n"),
              ElementsAre("ab", "abcd", "даша"));
  EXPECT_EQ(counts_.of(Drop::kRatio), 2);
  EXPECT_THAT(counts_.summary(), HasSubstr("2 ratio (first "));
  EXPECT_THAT(counts_.summary(), HasSubstr("train.de:2: 2 and 5 characters)"));
}

TEST_F(CleaningTest, CopiesDifferByMoreThanSpacesAtTheirEnds) {
  options_.drop_copies = true;
  EXPECT_THAT(kept("one\ntwo\nOne\n", "one \n2\none\n"), ElementsAre("two", "One"));
  EXPECT_EQ(counts_.of(Drop::kCopy), 1);
}

TEST_F(CleaningTest, OfWhatComesTwiceTheFirstStays) {
  const std::string source = "a\na\na\nb\n", target = "x\ny\nx\nx\n";
  const std::pair<const char*, int64_t> left_out[] = {
      {"none", 0}, {"pairs", 1}, {"source", 2}, {"target", 2}};
  for (const auto& [by, count] : left_out) {
    SCOPED_TRACE(by);
    options_.deduplicate = by;
    EXPECT_EQ(std::ssize(kept(source, target)), 4 - count);
    EXPECT_EQ(counts_.of(Drop::kDuplicate), count);
  }
  // The sides are not one text: "ab" and "c" is another pair than "a" and "bc".
  options_.deduplicate = "pairs";
  EXPECT_THAT(kept("ab\na\n", "c\nbc\n"), ElementsAre("ab", "a"));
}

TEST_F(CleaningTest, APairThatIsLeftOutHasNotComeBefore) {
  options_.deduplicate = "source";
  options_.max_ratio = 3;
  EXPECT_THAT(kept("ab\nab\nab\n", "abcdefghi\nx\ny\n"), ElementsAre("ab"));
  EXPECT_EQ(counts_.of(Drop::kRatio), 1);
  EXPECT_EQ(counts_.of(Drop::kDuplicate), 1);
}

TEST_F(CleaningTest, LooksThroughAllCorporaOfALoad) {
  options_.deduplicate = "pairs";
  const std::vector<CorpusSpec> corpora = {spec("first", "a\nb\n", "x\ny\n"),
                                           spec("second", "b\nc\n", "y\nz\n")};
  const ParallelCorpus pairs = load_parallel(corpora, word_tokenizers(), {});
  EXPECT_EQ(pairs.size(), 3);
  EXPECT_EQ(pairs.counts.of(Drop::kDuplicate), 1);
}

TEST_F(CleaningTest, LettersMustBeOfTheScripts) {
  options_.source_script = {"Latin"};
  options_.target_script = {"Han", "Hiragana", "Katakana"};
  EXPECT_THAT(kept("hello 1\nпривет\nabc\n12:30\nhello\n",
                   "こんにちは\nこんにちは\nabc\n12時30\n東京 is\n"),
              ElementsAre("hello 1", "12:30", "hello"));
  EXPECT_EQ(counts_.of(Drop::kScript), 2);
  EXPECT_THAT(counts_.summary(), HasSubstr(":2: 0 % of the source's letters are of its script)"));
  options_.script_share = 0.9;
  EXPECT_THAT(kept("hello\n", "東京 is\n"), testing::IsEmpty());
  options_.target_script = {"Hanny"};
  EXPECT_THAT(error_of(ErrorKind::kConfig, [&] { kept("a\n", "b\n"); }), HasSubstr("'Hanny'"));
}

TEST_F(CleaningTest, FindsHeldOutPairsInTheTraining) {
  const auto load = [&](const std::string& name, const std::string& a, const std::string& b) {
    return load_parallel({spec(name, a, b)}, word_tokenizers(), {});  // by the length of words
  };
  const ParallelCorpus train = load("train", "a\nbb\nccc\na\n", "x\nyy\nzzz\nx\n");
  const SharedPairs shared = shared_pairs(load("valid", "a\nbb\na\na\n", "yy\nyy\nx\nx\n"), train);
  EXPECT_EQ(shared.count, 3);
  EXPECT_EQ(shared.first, 1);
  EXPECT_EQ(shared_pairs(load("other", "a\n", "zzz\n"), train).count, 0);
}

}  // namespace
}  // namespace tapestry
