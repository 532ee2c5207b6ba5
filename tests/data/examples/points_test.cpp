#include "data/examples/points.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;

class PointsTest : public testing::Test {
 protected:
  Points read(const std::string& bytes) {
    CorpusSpec spec;
    spec.records = {folder_.write("p.csv", bytes), &kCsv};
    spec.limit = limit_;
    return load_points({spec});
  }
  std::string message(const std::string& bytes) {
    const std::string text = error_of(ErrorKind::kData, [&] { read(bytes); });
    return text.substr(0, 7) + text.substr(std::min(text.size(), text.rfind("p.csv")));
  }
  TempFolder folder_;
  int64_t limit_ = 0;
};

TEST_F(PointsTest, AreTwoNumbersInALine) {
  const Points points = read("1,2\n-0.5, 1e3 \n\n 3,4\r\n");
  EXPECT_THAT(points.x, ElementsAre(1, -0.5, 3));
  EXPECT_THAT(points.y, ElementsAre(2, 1000, 4));
}

TEST_F(PointsTest, MayHaveAHeader) {
  EXPECT_THAT(read("x,y\n1,2\n").x, ElementsAre(1));
  EXPECT_THAT(read("\xEF\xBB\xBF"
                   "length in m,mass\n1,2")
                  .y,
              ElementsAre(2));
}

TEST_F(PointsTest, EndAtTheLimit) {
  limit_ = 2;
  EXPECT_THAT(read("x,y\n1,2\n3,4\nno point\n").x, ElementsAre(1, 3));
}

TEST_F(PointsTest, OfSeveralFilesFollowEachOther) {
  CorpusSpec a, b;
  a.records = {folder_.write("a", "1,2\n"), &kCsv};
  b.records = {folder_.write("b", "3,4\n"), &kCsv};
  EXPECT_THAT(load_points({a, b}).y, ElementsAre(2, 4));
}

TEST_F(PointsTest, EachOfSeveralFilesHasItsCounts) {
  CorpusSpec a, b;
  a.records = {folder_.write("a", "1,2\n5,x\n"), &kCsv};
  b.records = {folder_.write("b", "3,4\n"), &kCsv};
  const FilterCounts counts = load_points({a, b}).counts;
  EXPECT_EQ(counts.kept, 2);
  ASSERT_EQ(counts.of_corpora.size(), 2u);
  EXPECT_EQ(counts.of_corpora[0].corpus, a.str());
  EXPECT_EQ(counts.of_corpora[0].of(Drop::kMalformed), 1);
  EXPECT_EQ(counts.of_corpora[1].total_dropped(), 0);
  EXPECT_EQ(counts.of_corpora[1].kept, 1);
  EXPECT_TRUE(load_points({a}).counts.of_corpora.empty());
}

TEST_F(PointsTest, AnythingElseIsLeftOut) {
  for (const char* line : {"1", "1,2,3", "1;2", "1,", ",", "1,two", "1,nan", "inf,1", "1,1e999",
                           "0x1p3,1", "+1,2", "1 2,3"}) {
    SCOPED_TRACE(line);
    const Points points = read(concat("0,0\n", line, "\n5,6\n"));
    EXPECT_THAT(points.x, ElementsAre(0, 5));
    EXPECT_EQ(points.counts.kept, 2);
    EXPECT_EQ(points.counts.of(Drop::kMalformed), 1);
    EXPECT_THAT(points.counts.summary(), testing::HasSubstr("p.csv:2 must be two numbers, got "));
  }
  EXPECT_THAT(read("0,0\n1\n").counts.summary(),
              testing::HasSubstr("p.csv:2 must be two numbers, got 1 column)"));
  // A first line with one number is a broken point.
  const Points points = read("1,y\n2,3\n");
  EXPECT_THAT(points.x, ElementsAre(2));
  EXPECT_THAT(points.counts.summary(), testing::HasSubstr("p.csv:1 must be two"));
}

TEST_F(PointsTest, AFileWithoutPointsIsAnError) {
  EXPECT_EQ(message("1\n3\n"), "[data] p.csv:1 must be two numbers, got 1 column.");
  EXPECT_THAT(message("x,y,z\n2,3\n"), testing::HasSubstr("p.csv:1 must be two"));
  EXPECT_EQ(message("x,y\n"), "[data] p.csv has no point.");
  std::string words;
  for (int i = 0; i < 100; ++i) words += "one,two\n";
  EXPECT_THAT(message("1,\n" + words + "1,2\n"), testing::HasSubstr("p.csv:1 must be two"));
}

TEST_F(PointsTest, AreWrittenSoThatTheSameNumbersAreRead) {
  const Points points{{0.1, 1.0 / 3, -1e-300, 12345678901234568.0}, {1e300, -0.0, 2, 5e-324}};
  const Points again = read(points.csv());
  EXPECT_EQ(again.x, points.x);
  EXPECT_EQ(again.y, points.y);
}

}  // namespace
}  // namespace tapestry
