#include "data/corpora/records/records.h"

#include <gmock/gmock.h>

#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Record record_of(const std::string& json) { return parse_json_record(json, "f:1"); }

std::string data_error(const std::function<void()>& f) { return error_of(ErrorKind::kData, f); }

TEST(Records, HoldTextsAndNumbersAsTheyAreWritten) {
  const Record record = record_of(R"({"a": "x\n\"y\" ä€", "b": 12, "c": -1.5, "d": ""})");
  EXPECT_EQ(record.text("a"), "x\n\"y\" ä€");
  EXPECT_EQ(record.text("b"), "12");
  EXPECT_EQ(record.integer("b"), 12);
  EXPECT_EQ(record.text("c"), "-1.5");
  EXPECT_EQ(record_of(R"({"a": {"b": {"c": "x"}}})").text("a.b.c"), "x");
  EXPECT_EQ(record.text("d"), "");
  EXPECT_THAT(record.names(), ElementsAre("a", "b", "c", "d"));
}

TEST(Records, KeepTheDigitsOfNumbers) {
  for (const char* const number :
       {"123456789012345678901", "1.10", "1e5", "-0", "0", "-7", "18446744073709551615"}) {
    EXPECT_EQ(record_of(std::string("{\"a\": {\"b\": ") + number + "}}").text("a.b"), number);
  }
}

TEST(Records, NameEachMemberOnce) {
  for (const char* const twice : {R"({"a": 1, "b": 2, "a": 1})", R"({"x": {"a": 1, "a": 2}})",
                                  R"({"x": [{"y": 1}, {"a": 1, "a": 2}]})"}) {
    EXPECT_EQ(data_error([&] { record_of(twice); }), "[data] f:1: names 'a' twice.") << twice;
    EXPECT_NO_THROW(json_names(twice, "f:1")) << twice;
  }
  const Record record = record_of(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}, 3], "c": "x"})");
  EXPECT_THAT(record.names(), ElementsAre("a", "a.a", "b", "c"));
  EXPECT_EQ(record.text("a.a"), "1");
  EXPECT_EQ(record.text("c"), "x");
}

TEST(Records, SayWhatIsMissingOrOfAnotherKind) {
  const Record record = record_of(
      R"({"list": [1], "object": {}, "null": null, "no": false, "text": "1x", "half": 0.5})");
  const auto expect = [](const std::string& message, const std::string& rest) {
    EXPECT_EQ(message, "[data] f:1" + rest);
  };
  expect(data_error([&] { record.text("question"); }),
         ": has the fields half, list, no, null, object, text; 'question' is none of them.");
  expect(data_error([&] { record.text("list"); }),
         ": the field 'list' must be a text or a number, got a list.");
  expect(data_error([&] { record.text("object"); }),
         ": the field 'object' must be a text or a number, got an object.");
  expect(data_error([&] { record.text("null"); }),
         ": the field 'null' must be a text or a number, got null.");
  expect(data_error([&] { record.text("no"); }),
         ": the field 'no' must be a text or a number, got false.");
  expect(data_error([&] { record.integer("text"); }),
         ": the field 'text' must be a whole number, got '1x'.");
  expect(data_error([&] { record.integer("half"); }),
         ": the field 'half' must be a whole number, got '0.5'.");
  EXPECT_FALSE(record.flag("no", true));
  EXPECT_TRUE(record.flag("absent", true));
  expect(data_error([&] { record.flag("text", true); }),
         ": the field 'text' must be true or false, got 1x.");
  expect(data_error([&] { record_of("{"); }), " must be a JSON object, got no JSON at byte 2: {.");
  expect(data_error([&] { record_of("[1]"); }), " must be a JSON object, got another value.");
  expect(data_error([&] { record_of("{}").text("a"); }), ": has no field; 'a' is none of them.");
  expect(data_error([&] { record_of("{\"a\": \"\xFF\"}"); }),
         " must be a JSON object, got no JSON at byte 8, in the field 'a'.");
}

TEST(Templates, AreFilledWithFields) {
  const Template text("Q: {question}\n{{{a b}}} A{question}:");
  EXPECT_THAT(text.fields(), ElementsAre("question", "a b"));
  EXPECT_EQ(text.fill(record_of(R"({"question": "{x}", "a b": 7})")), "Q: {x}\n{7} A{x}:");
  EXPECT_THAT(data_error([&] { text.fill(record_of(R"({"question": "x"})")); }),
              HasSubstr("f:1: has the field question; 'a b' is none of them."));
}

TEST(Templates, SayWhatIsWrong) {
  EXPECT_EQ(Template::problem_of("{a}"), "");
  EXPECT_THAT(Template::problem_of("{}"), HasSubstr("must name the field"));
  EXPECT_THAT(Template::problem_of("{a"), HasSubstr("must close the brace"));
  EXPECT_THAT(Template::problem_of("{a{b}"), HasSubstr("must close the brace"));
  EXPECT_THAT(Template::problem_of("{a}}"), HasSubstr("got a single }."));
  EXPECT_THAT(Template::problem_of("{{a}}"), HasSubstr("must name a field"));
  EXPECT_THAT(Template::problem_of(""), HasSubstr("must name a field"));
  EXPECT_THAT(error_of(ErrorKind::kConfig, [] { Template("a"); }),
              HasSubstr("[template] 'a' must name a field"));
}

}  // namespace
}  // namespace tapestry
