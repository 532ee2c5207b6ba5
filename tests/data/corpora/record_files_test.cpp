#include "data/corpora/records/record_files.h"

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "data/files/text.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Row = RecordReader::Row;

class RecordFiles : public testing::Test {
 protected:
  // "place: a|b" of each whole record, "place: blank" and so on of the others.
  std::vector<std::string> read(const RecordFormat& format, const std::string& bytes,
                                const std::vector<RecordField>& fields,
                                const std::string& header = "auto") const {
    const auto reader = open_records({folder_.write("f", bytes), &format, header}, fields);
    std::vector<std::string> rows;
    RecordValues values;
    for (Row row; (row = reader->next(values)) != Row::kEnd;) {
      std::string text = reader->place().substr(reader->place().rfind(':') + 1) + ": ";
      if (row != Row::kWhole) {
        text += row == Row::kBlank         ? "blank"
                : row == Row::kShort       ? "short"
                : row == Row::kLong        ? "long"
                : row == Row::kInvalidUtf8 ? "invalid"
                                           : "odd";
        if (!reader->reason().empty()) text += concat(" (", reader->reason(), ')');
      }
      for (size_t i = 0; row == Row::kWhole && i < fields.size(); ++i) {
        text += concat(i > 0 ? "|" : "", values.present[i] != 0 ? values.texts[i] : "-");
      }
      rows.push_back(text);
    }
    return rows;
  }
  // The error's text from the name of the file on.
  std::string error(const RecordFormat& format, const std::string& bytes,
                    const std::vector<RecordField>& fields) const {
    const std::string text = error_of(ErrorKind::kData, [&] { read(format, bytes, fields); });
    return text.substr(text.rfind("/f") + 1);
  }

  TempFolder folder_;
};

TEST_F(RecordFiles, TsvHasColumnsBetweenTabs) {
  const std::string text = "x\ty\tz\n\t \"q\n\na\tb\r\n";
  EXPECT_THAT(read(kTsv, text, {{"1"}, {"2"}}),
              ElementsAre("1: x|y", "2: | \"q", "3: blank", "4: a|b"));
  EXPECT_THAT(read(kTsv, text, {{"3"}}), ElementsAre("1: z", "2: short", "3: blank", "4: short"));
  EXPECT_THAT(read(kTsv, gzip(text), {{"2"}}).front(), "1: y");
}

TEST_F(RecordFiles, AFieldMayBeATextOrAList) {
  const std::vector<RecordField> fields = {{.name = "l", .or_list = true}, {"t"}};
  EXPECT_THAT(read(kJsonl,
                   R"({"t": 1, "l": ["a", "b c", 3]}
{"l": "a, b", "t": 2}
{"l": 7, "t": 3}
{"l": [], "t": 4}
{"l": ["a"], "t": 5}
{"l": ["a,b"], "t": 6}
{"l": ["a", "-"], "t": 7}
{"l": [" "], "t": 8}
{"l": ["a", ["b"]], "t": 9}
{"l": ["a", null], "t": 10}
{"l": {"a": 1}, "t": 11}
)",
                   fields),
              ElementsAre("1: a,b c,3|1", "2: a, b|2", "3: 7|3", "4: -|4", "5: a|5",
                          HasSubstr("6: odd (the field 'l' must be a text or a list of texts, got "
                                    "a list of texts with commas"),
                          HasSubstr("7: odd"), HasSubstr("8: odd"), HasSubstr("9: odd"),
                          HasSubstr("10: odd"), HasSubstr("got an object)")));
  EXPECT_THAT(read(kTsv, "a,b\tx\n", {{.name = "1", .or_list = true}}), ElementsAre("1: a,b"));
}

TEST_F(RecordFiles, TsvHasAHeaderWhereNamesAreAskedFor) {
  const std::string text = "id\tSaid \tde\n1\ta\tb\n";
  EXPECT_THAT(read(kTsv, text, {{"de"}, {"Said"}}), ElementsAre("2: b|a"));
  EXPECT_THAT(read(kTsv, text, {{"3"}}, "yes"), ElementsAre("2: b"));
  EXPECT_THAT(read(kTsv, text, {{"3"}}), ElementsAre("1: de", "2: b"));
}

// The rules of RFC 4180, section 2, and its examples.
TEST_F(RecordFiles, CsvIsRfc4180) {
  const std::string text =
      "aaa,bbb,ccc\r\n"
      "zzz,yyy,xxx\r\n"
      "\"a\"\"aa\",\"b \r\nbb\",\"c,\"\"\"\r\n"
      "\"\",,\" \"\n"
      " x , y,\"\"\"\"";
  EXPECT_THAT(read(kCsv, text, {{"aaa"}, {"bbb"}, {"ccc"}}),
              ElementsAre("2: zzz|yyy|xxx", "3: a\"aa|b \nbb|c,\"", "5: || ", "6:  x | y|\""));
  EXPECT_THAT(read(kCsv, text, {{"1"}}, "no").front(), "1: aaa");
  EXPECT_THAT(read(kCsv, "\xEF\xBB\xBF\"a b\",c\n1,2", {{"a b"}}), ElementsAre("2: 1"));
}

TEST_F(RecordFiles, CsvSaysWhatIsWrong) {
  EXPECT_THAT(read(kCsv, "a,b\n1\n\n1,2,3\n4,5\n", {{"b"}}),
              ElementsAre("2: short", "3: blank", "4: long", "5: 5"));
  EXPECT_EQ(error(kCsv, "a,b\n3,\"4\n", {{"b"}}),
            "f:2: a quoted field of the record that begins here, in column 2, does not end, as RFC "
            "4180 asks for.");
  EXPECT_EQ(error(kCsv, "a,b\n\"1\"x,2\n", {{"b"}}),
            "f:2: expected a comma behind the quote at byte 3, got 'x' (a quote inside a quoted "
            "field is written twice).");
  EXPECT_EQ(error(kCsv, "a;b\n1;2\n", {{"b"}}),
            "f:1: has the column a;b; 'b' is none of them; line 1 looks like columns between "
            "semicolons: csv separates by commas (save it so, or replace the semicolons by tabs "
            "and use tsv).");
}

// What stands behind a quote without an end is read again, line by line.
TEST_F(RecordFiles, OneOddRecordOfACsvIsOneOddRecord) {
  EXPECT_THAT(
      read(kCsv, "a,b\n1,2\n3,\"4\n5,6\n\"7\n7\",8\n\"9\"x,9\n10,11\n", {{"b"}}),
      ElementsAre("2: 2",
                  "3: odd (expected a comma behind the quote at byte 1 of line 5, got '7' (a quote "
                  "inside a quoted field is written twice))",
                  "4: 6", "5: 8",
                  "7: odd (expected a comma behind the quote at byte 3, got 'x' (a quote inside a "
                  "quoted field is written twice))",
                  "8: 11"));
  EXPECT_THAT(
      read(kCsv, "a,b\n1,2\n3,\"4\n5,6\n", {{"b"}}),
      ElementsAre("2: 2", HasSubstr("3: odd (a quoted field of the record that begins here"),
                  "4: 6"));
}

TEST_F(RecordFiles, SayWhichColumnsThereAre) {
  EXPECT_EQ(error(kCsv, "id,text,label\n", {{"txt"}}),
            "f:1: has the columns id, text, label; 'txt' is none of them; did you mean 'text'?");
  EXPECT_EQ(error(kTsv, "id,text\n", {{"text"}}),
            "f:1: has the column id,text; 'text' is none of them; line 1 looks like CSV: use csv.");
  EXPECT_EQ(
      error(kCsv, "{\"text\": \"a\"}\n", {{"text"}}),
      "f:1: has the column {\"text\": \"a\"}; 'text' is none of them; line 1 looks like JSON: use "
      "jsonl.");
  EXPECT_EQ(error(kJsonl, "\n{\"id\": 3}\n", {{"text"}}),
            "f:2: has the field id; 'text' is none of them.");
  EXPECT_EQ(error(kJsonl, "id,text\n", {{"text"}}),
            "f:1 must be a JSON object, got no JSON at byte 1: i; line 1 looks like CSV: use csv.");
  EXPECT_EQ(error(kJsonl, "[{\"text\": 1}]\n", {{"text"}}),
            "f:1 must be a JSON object, got another value; line 1 looks like a JSON list: jsonl "
            "has an object in each line.");
  EXPECT_EQ(error(kTsv, "Well, what now?\n", {{"text"}}),
            "f:1: has the column Well, what now?; 'text' is none of them.");
}

TEST_F(RecordFiles, AHeaderNamesAColumnOnce) {
  EXPECT_EQ(error(kCsv, "id,text,id, text\n1,2,3,4\n", {{"text"}}),
            "f:1 names the column 'text' twice: columns 2 and 4.");
  EXPECT_EQ(error(kTsv, "text\ttext\n1\t2\n", {{"text"}}),
            "f:1 names the column 'text' twice: columns 1 and 2.");
  // Nobody asks for the others.
  EXPECT_THAT(read(kCsv, "id,text,id\n1,2,3\n", {{"text"}}), ElementsAre("2: 2"));
  EXPECT_THAT(read(kCsv, "text,text\n1,2\n", {{"2"}}, "yes"), ElementsAre("2: 2"));
}

TEST_F(RecordFiles, JsonlHasNumbersAsTheyAreWritten) {
  for (const char* const number :
       {"123456789012345678901", "18446744073709551615", "-9223372036854775808",
        "-12345678901234567890", "1.10", "1e5", "1E+05", "-0", "0", "-0.0", "7", "-7",
        "0.1000000000000000055511151231257827"}) {
    const std::string line = concat("{\"a\": ", number, ", \"b\": [", number, "]}\n");
    EXPECT_THAT(read(kJsonl, line, {{"a"}, {.name = "b", .list = true}}),
                ElementsAre(concat("1: ", number, '|', number)));
  }
}

// The names in a message are those of a record of which another member stands there twice.
TEST_F(RecordFiles, AMemberThatNobodyAsksForMayStandTwice) {
  EXPECT_THAT(read(kJsonl, "{\"a\": 1, \"b\": 2, \"b\": 3}\n", {{"a"}}), ElementsAre("1: 1"));
  EXPECT_EQ(error(kJsonl, "{\"b\": 2, \"b\": 3}\n", {{"a"}}),
            "f:1: has the field b; 'a' is none of them; did you mean 'b'?");
}

TEST_F(RecordFiles, JsonlHasNamedFields) {
  const std::string text =
      "{\"a\": \"x\", \"b\": [{\"a\": 1}], \"c\": {\"a\": -1.5, \"d\": {\"e\": \"\\u00e4\"}}}\n\n"
      "  \n{\"c\": {\"d\": {\"e\": 7, \"f\": 8}, \"a\": \"z\"}, \"a\": 2}\r\n";
  EXPECT_THAT(read(kJsonl, text, {{"a"}, {"c.d.e"}, {"c.a"}}),
              ElementsAre("1: x|ä|-1.5", "4: 2|7|z"));
  EXPECT_EQ(error(kJsonl, "{\"a\": [\"x\"]}", {{"a"}}),
            "f:1: the field 'a' must be a text or a number, got a list.");
  EXPECT_EQ(error(kJsonl, "{\"a\": null}", {{"a"}}),
            "f:1: the field 'a' must be a text or a number, got null.");
  EXPECT_EQ(error(kJsonl, "{\"a\": \"x\", \"a\": \"y\"}", {{"a"}}),
            "f:1: the field 'a' must be a text or a number, got several values.");
  EXPECT_EQ(error(kJsonl, "{\"a\": 1\n", {{"a"}}),
            "f:1 must be a JSON object, got no JSON at byte 8, in the field 'a': 1.");
  EXPECT_EQ(error(kJsonl, "7", {{"a"}}), "f:1 must be a JSON object, got another value.");
}

// Each is what a program writes now and then: Python's json.dumps of None, of NaN, and of a lone
// surrogate; a number that no double holds; a line that was cut; a record of another kind.
TEST_F(RecordFiles, OneOddRecordOfAJsonlIsOneOddRecord) {
  const std::string text =
      "{\"a\": 1}\n"
      "{\"a\": null}\n"
      "{\"a\": \"x\", \"score\": NaN}\n"
      "{\"score\": {\"of\": 1e999}, \"a\": \"x\"}\n"
      "{\"a\": \"\\ud83d\"}\n"
      "{\"b\": 1}\n"
      "[1]\n"
      "{\"a\": \"\xff\"}\n"
      "{\"a\": \"x\n"
      "{\"a\": 2}\n";
  EXPECT_THAT(
      read(kJsonl, text, {{"a"}}),
      ElementsAre("1: 1", "2: odd (the field 'a' must be a text or a number, got null)",
                  HasSubstr("3: odd (no JSON at byte 21, in the field 'score': "),
                  HasSubstr("4: odd (no JSON at byte 22, in the field 'score.of': "),
                  HasSubstr("5: invalid (half a surrogate pair at byte 14, in the field 'a'"),
                  "6: short (no field 'a')", "7: odd (another value than an object)", "8: invalid",
                  HasSubstr("9: odd (no JSON at byte 9, in the field 'a'"), "10: 2"));
}

// A file that is of another kind is not read to its end.
TEST_F(RecordFiles, AHundredOddRecordsAreAnotherFile) {
  std::string odd, even = "{\"a\": 0}\n";
  for (int i = 0; i < 200; ++i) odd += "{\"b\": 1}\n";
  EXPECT_EQ(error(kJsonl, odd + even, {{"a"}}),
            "f:1: has the field b; 'a' is none of them; did you mean 'b'?");
  EXPECT_EQ(read(kJsonl, even + odd, {{"a"}}).size(), 201u);
}

// Of a text it stays an error: that is no text file.
TEST_F(RecordFiles, ALineThatIsTooLongIsAnOddRecord) {
  const std::string huge(LineReader::kMaxLineBytes + 10, 'x');
  EXPECT_THAT(read(kJsonl, "{\"a\": 1}\n{\"a\": \"" + huge + "\"}\n{\"a\": 2}\n", {{"a"}}),
              ElementsAre("1: 1", "2: odd (a line of more than 64 MiB)", "3: 2"));
  EXPECT_THAT(read(kCsv, "a\n1\n" + huge + "\n2\n", {{"a"}}),
              ElementsAre("2: 1", "3: odd (a line of more than 64 MiB)", "4: 2"));
}

TEST_F(RecordFiles, MayLackWhatIsOptional) {
  const std::vector<RecordField> fields = {{"a"}, {"b", true}, {"c", true}};
  EXPECT_THAT(
      read(kJsonl, "{\"a\": 1}\n{\"a\": 1, \"b\": null, \"c\": true}\n{\"a\": 1, \"b\": \"\"}\n",
           fields),
      ElementsAre("1: 1|-|-", "2: 1|-|true", "3: 1||-"));
  EXPECT_THAT(read(kCsv, "a,b\n1,\n1,2\n", fields), ElementsAre("2: 1|-|-", "3: 1|2|-"));
}

}  // namespace
}  // namespace tapestry
