// Dirty corpora: what each kind of dirt comes to. It is told with its place, or the text is kept as
// it is; none of it shifts one side of a translation against the other.
#include <gmock/gmock.h>

#include "data/corpora/corpus.h"
#include "tests/data/files/compressed_files.h"
#include "tests/data/images/image_files.h"

namespace tapestry {
namespace {

using namespace std::string_literals;

/// The pairs that are read, or the error.
struct Outcome {
  std::vector<TextPair> pairs;
  std::string said;  ///< the counts, or the message
};

Outcome read(const CorpusSpec& spec) {
  Outcome outcome;
  try {
    const auto reader = open_corpus(spec);
    for (TextPair pair; reader->next(pair);) outcome.pairs.push_back(pair);
    outcome.said = reader->counts().summary();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(ErrorKind::kData)) << error.what();
    outcome.said = error.what();
    outcome.pairs.clear();  // nobody uses those before the error
  }
  return outcome;
}

std::string numbered_lines(const char* word, int from, int to) {
  std::string lines;
  for (int i = from; i <= to; ++i) lines += word + std::to_string(i) + '\n';
  return lines;
}

/// Every pair must be "s7", "t7": a shift shows.
void expect_paired(const std::vector<TextPair>& pairs) {
  for (const TextPair& pair : pairs) {
    if (!pair.source.starts_with('s') || !pair.target.starts_with('t')) continue;
    EXPECT_EQ(pair.source.substr(1), pair.target.substr(1)) << pair.place;
  }
}

class Dirt : public testing::Test {
 protected:
  CorpusSpec parallel(const std::string& source, const std::string& target) const {
    CorpusSpec spec;
    spec.source = folder_.write("source", source);
    spec.target = folder_.write("target", target);
    return spec;
  }
  TempFolder folder_;
};

struct DirtyLine {
  const char* name;
  std::string line;
  const char* drop;       ///< the reason; "": the pair is kept
  std::string read = {};  ///< what a kept line reads as; "": as it stands
};

const DirtyLine kDirtyLines[] = {
    {"nothing", "", "empty"},
    {"spaces", "   ", "empty"},
    {"a tab", "\t", "empty"},
    {"CR only", "\r", "empty"},
    {"no-break spaces", "\xc2\xa0\xc2\xa0", "empty"},
    {"ideographic spaces", "\xe3\x80\x80", "empty"},
    {"a line separator", "\xe2\x80\xa8", "empty"},
    {"a zero-width space", "\xe2\x80\x8b", "empty"},
    {"a word joiner", "\xe2\x81\xa0", "empty"},
    {"a byte order mark in the middle of a file alone", "\xef\xbb\xbf", "empty"},
    {"soft hyphens", "\xc2\xad \xc2\xad", "empty"},
    {"marks of direction", "\xe2\x80\x8e\xe2\x80\xae\xe2\x81\xa9", "empty"},
    {"controls", "\x01\x1b\x7f\xc2\x80", "empty"},
    {"a selector and a filler", "\xef\xb8\x8f\xe3\x85\xa4", "empty"},
    {"a format character that is seen (U+0600)", "\xd8\x80", ""},
    {"a macron, which is a space and a mark by NFKC", "\xc2\xaf", ""},
    {"a byte order mark in the middle of a file", "\xef\xbb\xbfx", ""},
    {"CR LF", "x\r", "", "x"},
    {"CR inside", "x\ry", ""},
    {"VT and FF", "x\vy\fz", ""},
    {"a next-line character", "x\xc2\x85y", ""},
    {"a paragraph separator", "x\xe2\x80\xa9y", ""},
    {"NUL", "x\0y"s, "nul_byte"},
    {"other control bytes", "\x01\x1b[31mx\x7f", ""},
    {"a byte of no character", "x\xff", "invalid_utf8"},
    {"Latin-1",
     "Stra\xdf"
     "e",
     "invalid_utf8"},
    {"Windows-1252 quotes", "\x93x\x94", "invalid_utf8"},
    {"too long an encoding", "\xc0\x80", "invalid_utf8"},
    {"a surrogate", "\xed\xa0\x80", "invalid_utf8"},
    {"beyond Unicode", "\xf4\x90\x80\x80", "invalid_utf8"},
    {"a character cut at the end", "x\xe2\x82", "invalid_utf8"},
    {"a replacement character", "x\xef\xbf\xbd", ""},
    {"a noncharacter", "x\xef\xbf\xbf", ""},
    {"private use", "\xee\x80\x80", ""},
    {"a text direction override", "\xe2\x80\xaex", ""},
    {"decomposed accents", "e\xcc\x81", ""},
    {"an emoji", "\xf0\x9f\x98\x80", ""},
    {"text that was encoded twice", "\xc3\x83\xc2\xa9", ""},
    {"markup", "<b>x</b> &amp; &#228;", ""},
    {"tabs between words", "x\ty", ""},
    {"the names of special pieces", "<s> </s> <unk>", ""},
};

TEST_F(Dirt, OfOneLineCostsItsPairOnlyAndShiftsNone) {
  for (const DirtyLine& dirt : kDirtyLines) {
    for (const bool in_source : {true, false}) {
      const std::string dirty_source = numbered_lines("s", 1, 3) + (in_source ? dirt.line : "s4"s) +
                                       '\n' + numbered_lines("s", 5, 9);
      const std::string dirty_target = numbered_lines("t", 1, 3) + (in_source ? "t4"s : dirt.line) +
                                       '\n' + numbered_lines("t", 5, 9);
      const Outcome outcome = read(parallel(dirty_source, dirty_target));
      expect_paired(outcome.pairs);
      if (*dirt.drop != '\0') {
        EXPECT_EQ(outcome.pairs.size(), 8u) << dirt.name << ": " << outcome.said;
        EXPECT_THAT(outcome.said, testing::HasSubstr(concat("1 ", dirt.drop, " (first ")))
            << dirt.name;
        EXPECT_THAT(outcome.said, testing::HasSubstr("target:4")) << dirt.name;
        continue;
      }
      ASSERT_EQ(outcome.pairs.size(), 9u) << dirt.name << ": " << outcome.said;
      const TextPair& pair = outcome.pairs[3];
      EXPECT_EQ(in_source ? pair.source : pair.target, dirt.read.empty() ? dirt.line : dirt.read)
          << dirt.name;
    }
  }
}

struct DirtyFile {
  const char* name;
  std::string source;
  const char* said;
};

TEST_F(Dirt, OfAWholeFileIsTold) {
  const std::string good = numbered_lines("s", 1, 9), packed = gzip(good);
  std::string wide;  // UTF-16
  for (const char c : good) wide += {c, '\0'};
  const DirtyFile kFiles[] = {
      {"one line more in the middle",
       numbered_lines("s", 1, 4) + "new\n" + numbered_lines("s", 5, 9), "source has 10 lines, "},
      {"one line less in the middle", numbered_lines("s", 1, 4) + numbered_lines("s", 6, 9),
       "source has 8 lines, "},
      {"a line cut in two", numbered_lines("s", 1, 4) + "s\n5\n" + numbered_lines("s", 6, 9),
       "source has 10 lines, "},
      {"a blank line at the end", good + "\n", "source has 10 lines, "},
      {"no byte", "", "source is empty"},
      {"UTF-16 with its mark", "\xff\xfe" + wide,
       "source is UTF-16, expected UTF-8: iconv -f UTF-16 -t UTF-8 makes it so."},
      {"UTF-16 without one", wide, "source is UTF-16, expected UTF-8"},
      {"Latin-1", "s1\ncaf\xe9\n" + numbered_lines("s", 3, 9),
       "1 invalid_utf8 (first " /* place */},
      {"a picture", png_file({2, 2, 1, {1, 2, 3, 4}}), "source has "},
      {"a zip file", "PK\x03\x04" + good, "source is a zip file"},
      {"a gzip file that is cut", packed.substr(0, packed.size() - 6), "is a truncated gzip file"},
      {"a gzip file with something behind it", packed + "x", "that are no gzip data"},
      {"a gzip file with damage",
       [&] {
         std::string damaged = packed;
         damaged[damaged.size() - 5] ^= 1;
         return damaged;
       }(),
       "is a damaged gzip file"},
      {"no end of the last line", good.substr(0, good.size() - 1), "9 read, 9 kept"},
      {"a byte order mark", "\xef\xbb\xbf" + good, "9 read, 9 kept"},
      {"ends of lines of another system",
       [&] {
         std::string text;
         for (const char c : good) text += c == '\n' ? "\r\n"s : std::string(1, c);
         return text;
       }(),
       "9 read, 9 kept"},
      {"ends of lines of an old Mac",
       [&] {
         std::string text = good;
         for (char& c : text) c = c == '\n' ? '\r' : c;
         return text;
       }(),
       "source has lines that end in CR only"},
  };
  const std::string target = numbered_lines("t", 1, 9);
  for (const DirtyFile& dirt : kFiles) {
    const Outcome outcome = read(parallel(dirt.source, target));
    EXPECT_THAT(outcome.said, testing::HasSubstr(dirt.said)) << dirt.name;
    expect_paired(outcome.pairs);
  }
  CorpusSpec spec = parallel(good, target);
  spec.source = folder_.path("none");
  EXPECT_THAT(read(spec).said, testing::HasSubstr("none cannot be opened"));
  spec.source = folder_.path("");
  EXPECT_THAT(read(spec).said, testing::HasSubstr("is a directory"));
}

// Two faults that make up for each other: the numbers of lines are the same, and no reader can know
// which line belongs to which. The README says so; `tapestry score` finds such pairs.
TEST_F(Dirt, ThatShiftsAPartOfAFileIsNotSeen) {
  const Outcome outcome = read(parallel(
      numbered_lines("s", 1, 3) + "new\n" + numbered_lines("s", 4, 8), numbered_lines("t", 1, 9)));
  EXPECT_EQ(outcome.pairs.size(), 9u);
  EXPECT_EQ(outcome.pairs[4].source, "s4");
  EXPECT_EQ(outcome.pairs[4].target, "t5");
}

TEST_F(Dirt, OfTablesIsToldToo) {
  struct DirtyRow {
    const char* format;
    std::string row;
    const char* said;
  };
  const DirtyRow kRows[] = {
      {"tsv", "only one\n", "1 missing_column (first "},
      {"tsv", "a\tb\tc\n", "3 read, 3 kept"},
      {"tsv", "a\t\n", "1 empty (first "},
      {"tsv", "\"a\tb\"\n", "3 read, 3 kept"},  // a tsv has no quotes
      {"csv", "only one\n", "1 missing_column (first "},
      {"csv", "a,b,c\n", "1 malformed (first "},
      {"csv", "\"a\nb\",c\n", "3 read, 3 kept"},
      {"csv", "\"a,b\n", "table:"},           // the quote is open to the end
      {"csv", "a\"b,c\n", "3 read, 3 kept"},  // a quote inside of a field is a character
      {"jsonl", "{\"s\": \"a\"\n", "table:2"},
      {"jsonl", "{\"s\": \"a\"}\n", "table:2"},
      {"jsonl", "{\"s\": [\"a\"], \"t\": \"b\"}\n", "table:2"},
      {"jsonl", "{\"s\": null, \"t\": \"b\"}\n", "table:2"},
      {"jsonl", "{\"s\": \"\xff\", \"t\": \"b\"}\n", "1 invalid_utf8 (first "},
      {"jsonl", "{\"s\": \"a\\u0000\", \"t\": \"b\"}\n", "1 nul_byte (first "},
      {"jsonl", "\n", "2 read, 2 kept"},
  };
  for (const DirtyRow& dirt : kRows) {
    const std::string format = dirt.format;
    const auto good = [&](const std::string& s, const std::string& t) {
      if (format == "jsonl") return "{\"s\": \"" + s + "\", \"t\": \"" + t + "\"}\n";
      return s + (format == "tsv" ? '\t' : ',') + t + '\n';
    };
    CorpusSpec spec;
    const std::string header = format == "csv" ? "s,t\n" : "";
    const std::string path =
        folder_.write("table", header + good("s1", "t1") + dirt.row + good("s3", "t3"));
    spec.records = {path, format == "tsv" ? &kTsv : format == "csv" ? &kCsv : &kJsonl};
    spec.source_column = format == "tsv" ? "1" : "s";
    spec.target_column = format == "tsv" ? "2" : "t";
    const Outcome outcome = read(spec);
    EXPECT_THAT(outcome.said, testing::HasSubstr(dirt.said)) << format << ' ' << dirt.row;
    expect_paired(outcome.pairs);
  }
}

}  // namespace
}  // namespace tapestry
