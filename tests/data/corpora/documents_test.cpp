#include <gmock/gmock.h>

#include "data/corpora/corpus.h"
#include "tests/data/files/files.h"
#include "tests/data/tokenizers/word_tokenizer.h"

namespace tapestry {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

class Documents : public testing::Test {
 protected:
  std::vector<std::string> read(const std::string& documents, const std::string& bytes) {
    spec_.documents = documents;
    spec_.text = folder_.write("text", bytes);
    const auto reader = open_corpus(spec_);
    std::vector<std::string> texts;
    places_.clear();
    for (TextPair pair; reader->next(pair);) {
      texts.push_back(pair.source);
      places_.push_back(pair.place.substr(pair.place.rfind(':') + 1));
    }
    counts_ = reader->counts();
    return texts;
  }
  std::string cut(const std::string& bytes, double begin, double end) {
    spec_.range_begin = begin;
    spec_.range_end = end;
    const auto texts = read("file", bytes);
    return texts.empty() ? "" : texts.at(0);
  }

  TempFolder folder_;
  CorpusSpec spec_;
  FilterCounts counts_;
  std::vector<std::string> places_;
};

TEST_F(Documents, ParagraphsEndAtBlankLines) {
  EXPECT_THAT(read("paragraphs", "\n\na\nb\n \t\n\nc\r\n\r\nd\ne"),
              ElementsAre("a\nb", "c", "d\ne"));
  EXPECT_THAT(places_, ElementsAre("3", "7", "9"));
  EXPECT_EQ(counts_.read, 3);
  EXPECT_EQ(counts_.kept, 3);
}

TEST_F(Documents, FortunesEndAtPercentLines) {
  EXPECT_THAT(read("fortunes", "100 %\n\nb\n%\n%\n %\n%\n \n%\nc\n%\n"),
              ElementsAre("100 %\n\nb", " %", "c"));
  EXPECT_THAT(places_, ElementsAre("1", "6", "10"));
  EXPECT_EQ(counts_.read, 4);
  EXPECT_EQ(counts_.of(Drop::kEmpty), 1);
}

TEST_F(Documents, DirtyOnesAreDroppedAndCounted) {
  EXPECT_THAT(read("paragraphs", "a\nb\xFF\n\nc\n\nd\0\n"s), ElementsAre("c"));
  EXPECT_EQ(counts_.of(Drop::kInvalidUtf8), 1);
  EXPECT_EQ(counts_.of(Drop::kNulByte), 1);
  EXPECT_THAT(counts_.first[static_cast<size_t>(Drop::kNulByte)], testing::EndsWith("text:6"));
}

TEST_F(Documents, AFileIsOneWithItsLineEnds) {
  EXPECT_THAT(read("file", "a\n\n b \nc"), ElementsAre("a\n\n b \nc"));
  EXPECT_THAT(read("file", "a\nb\n"), ElementsAre("a\nb\n"));
  EXPECT_THAT(read("file",
                   "\xEF\xBB\xBF"
                   "a\r\nb\rc\r\n"),
              ElementsAre("a\nb\rc\n"));
  EXPECT_THAT(read("file", gzip("a\nb\n")), ElementsAre("a\nb\n"));
  EXPECT_EQ(counts_.read, 1);
}

TEST_F(Documents, DirtInAFileIsAnErrorThatNamesThePlace) {
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read("file", "a\nbc\xFF\n"); }),
              HasSubstr("text:2 has ill-formed UTF-8 at byte 3 of the line, expected text."));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read("file", "a\nb\0\xFF\n"s); }),
              HasSubstr("text:2 has a NUL byte at byte 2"));
  EXPECT_THAT(error_of(ErrorKind::kData, [&] { read("file", ""); }), HasSubstr("is empty"));
}

TEST_F(Documents, RangesAreOfCharacters) {
  const std::string text =
      "ä\nöü€\U0001F600"
      "bcde";  // 10 characters
  EXPECT_EQ(cut(text, 0, 0.5), "ä\nöü€");
  EXPECT_EQ(cut(text, 0.5, 1),
            "\U0001F600"
            "bcde");
  EXPECT_EQ(cut(text, 0.19, 0.31), "\nö");
  EXPECT_EQ(cut(text, 0.1, 0.15), "");  // no character: as an empty document
  EXPECT_EQ(counts_.of(Drop::kEmpty), 1);
  // The parts of a split are the whole.
  EXPECT_EQ(cut(text, 0, 0.33) + cut(text, 0.33, 0.77) + cut(text, 0.77, 1), text);
}

TEST_F(Documents, SplitIsByDocument) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "some\ntext " + std::to_string(i) + "\n%\n";
  size_t all = 0;
  for (const char* const split : {"train", "valid", "test"}) {
    spec_.split = split;
    all += read("fortunes", text).size();
    EXPECT_GT(counts_.other_split, 0);
  }
  EXPECT_EQ(all, 1000u);
}

TEST_F(Documents, ContradictionsAreConfigErrors) {
  const auto message = [](auto&& change) {
    CorpusSpec spec;
    spec.text = "a";
    change(spec);
    return error_of(ErrorKind::kConfig, [&] { spec.validate(); });
  };
  EXPECT_EQ(message([](auto& s) { s.documents = "line"; }),
            "[data] documents must be one of lines, paragraphs, fortunes, file, got 'line'.");
  EXPECT_THAT(message([](auto& s) { s.range_end = 0.5; }),
              HasSubstr("range_begin needs documents file"));
  EXPECT_THAT(message([](auto& s) { s.documents = "file", s.split = "train"; }),
              HasSubstr("use a range."));
  EXPECT_THAT(message([](auto& s) { s.documents = "file", s.range_begin = 1; }),
              HasSubstr("below range_end, both in [0, 1], got 1 and 1."));
  EXPECT_THAT(message([](auto& s) { s.documents = "file", s.range_end = 1.5; }), HasSubstr("1.5"));
  EXPECT_THAT(message([](auto& s) { s.text = "", s.ding = "d", s.documents = "file"; }),
              HasSubstr("documents applies only to text, got file with d."));
  EXPECT_THAT(message([](auto& s) { s.label_column = "1"; }),
              HasSubstr("label_column does not belong to this kind of corpus, got a."));
}

}  // namespace
}  // namespace tapestry
