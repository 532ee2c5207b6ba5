#include "data/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "data/files/files.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

std::string template_source(const std::string& name) {
  return read_file(project_file("tests/fixtures/chat/templates/" + name));
}

// What the fixtures' strftime_now() saw.
std::time_t fixed_time() {
  std::tm time = {};
  time.tm_year = 125, time.tm_mon = 2, time.tm_mday = 5;
  time.tm_hour = 4, time.tm_min = 6, time.tm_sec = 7, time.tm_isdst = -1;
  return std::mktime(&time);
}

// As transformers gives them to a template.
Json variables_of(const Json& expected, const Json& test) {
  Json variables = test.at("variables");
  variables["messages"] = expected.at("talks").at(test.at("talk").get<std::string>());
  for (const char* const name : {"tools", "documents"}) {
    if (!variables.contains(name)) variables[name] = nullptr;
  }
  return variables;
}

// Rendered by transformers (tests/fixtures/chat_templates.py).
TEST(ChatTemplates, RenderAsTransformersDoes) {
  const Json expected = Json::parse(read_file(project_file("tests/fixtures/chat/expected.json")));
  int texts = 0, errors = 0;
  for (const Json& test : expected.at("cases")) {
    const auto name = test.at("template").get<std::string>();
    SCOPED_TRACE(name + ", " + test.at("talk").dump());
    const ChatTemplate chat(template_source(name), name);
    const Json variables = variables_of(expected, test);
    if (test.contains("error")) {
      ++errors;
      try {
        chat.render(variables, fixed_time());
        ADD_FAILURE() << "expected an error: " << test.at("error");
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kData);
        EXPECT_THAT(error.what(), testing::StartsWith(name + ":"));
        if (test.at("class") == "TemplateError") {
          EXPECT_THAT(error.what(), HasSubstr(test.at("error").get<std::string>()));
        }
      }
      continue;
    }
    ++texts;
    const RenderedChat rendered = chat.render(variables, fixed_time());
    EXPECT_EQ(rendered.text, test.at("text").get<std::string>());
    EXPECT_EQ(Json(rendered.generated), test.at("generated"));
    EXPECT_EQ(chat.marks_answers(), chat.source().find("{% generation") != std::string::npos ||
                                        chat.source().find("{%- generation") != std::string::npos);
  }
  EXPECT_GT(texts, 700);
  EXPECT_GT(errors, 50);
}

std::string render(const std::string& source, const std::string& variables = "{}") {
  return ChatTemplate(source, "chat.jinja").render(Json::parse(variables), fixed_time()).text;
}

std::string error_of(const std::string& source, const std::string& variables = "{}") {
  try {
    return "no error, but: " + render(source, variables);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatTemplates, ErrorsNameThePlace) {
  EXPECT_EQ(error_of("a\n{{ b + }}"), "chat.jinja:2:8: expected an expression, got '}}'.");
  EXPECT_EQ(
      error_of("{% for x in y %}\n{{ x }}"),
      "chat.jinja:2:8: expected 'else' or 'endfor' for the 'for' of line 1, got the end of the "
      "template.");
  EXPECT_EQ(error_of("{% include 'x' %}"),
            "chat.jinja:1:4: expected for, if, set, macro, generation, break or continue, got "
            "'include'.");
  EXPECT_EQ(error_of("{% endif %}"),
            "chat.jinja:1:4: expected a tag that begins something, got 'endif'.");
  EXPECT_EQ(error_of("{% break %}"), "chat.jinja:1:4: 'break' is in no loop.");
  EXPECT_EQ(error_of("x\n {{ 'abc"),
            "chat.jinja:2:5: expected ''' after a quote, got the end of the template.");
  EXPECT_EQ(error_of("{{ a.b.c }}", R"({"a": {}})"), "chat.jinja:1:8: the dictionary has no 'b'.");
  EXPECT_EQ(error_of("\n\n{{ 1 + x }}"), "chat.jinja:3:6: 'x' is undefined.");
  EXPECT_EQ(error_of("{{ 1 | nothing }}"), "chat.jinja:1:8: there is no filter 'nothing'.");
  EXPECT_EQ(error_of("{{ 'a' | join(x=1) }}"), "chat.jinja:1:10: 'join' has no argument 'x'.");
  EXPECT_EQ(error_of("{{ raise_exception('no') }}"), "chat.jinja:1:19: the template refuses: no.");
  EXPECT_EQ(error_of("{{ (1] }}"), "chat.jinja:1:6: expected ')', got ']'.");
}

TEST(ChatTemplates, GenerationStandsOnItsOwnLevel) {
  EXPECT_THAT(error_of("{% macro m() %}{% generation %}{% endgeneration %}{% endmacro %}"),
              HasSubstr("must stand outside of macros"));
  EXPECT_THAT(
      error_of("{% for x in y %}{% generation %}{% break %}{% endgeneration %}{% endfor %}"),
      HasSubstr("'break' is in no loop"));
}

TEST(ChatTemplates, NeitherRunForEverNorGrowWithoutBound) {
  const std::string many = "{% for a in range(100000) %}";
  EXPECT_THAT(error_of(many + many + "{{ a }}{% endfor %}{% endfor %}"),
              HasSubstr("has not ended"));
  EXPECT_THAT(error_of("{{ range(100001) }}"), HasSubstr("100000 numbers"));
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("1000 deep"));
  EXPECT_THAT(error_of("{{ 'x' * 100000000 }}"), HasSubstr("too long"));
  EXPECT_THAT(
      error_of("{% set n = namespace(s='xx') %}" + many + "{% set n.s = n.s + n.s %}{% endfor %}"),
      HasSubstr("chat.jinja:1:"));
  EXPECT_THAT(
      error_of("{% set n = namespace(l=[]) %}" + many + "{% set n.l = [n.l] %}{% endfor %}"),
      HasSubstr("100 deep"));
  EXPECT_THAT(error_of("{% set n = namespace() %}{% set n.a = n %}{{ n.a }}"),
              HasSubstr("is not text"));
  EXPECT_THAT(error_of("{{ " + std::string(10000, '(') + "1" + std::string(10000, ')') + " }}"),
              HasSubstr("200 deep"));
  EXPECT_THAT(error_of("{{ 1" +
                       [] {
                         std::string sum;
                         for (int i = 0; i < 100000; ++i) sum += "+1";
                         return sum;
                       }() +
                       " }}"),
              HasSubstr("200 deep"));
  std::string ifs;
  for (int i = 0; i < 5000; ++i) ifs += "{% if 1 %}";
  EXPECT_THAT(error_of(ifs), HasSubstr("100 deep"));
  std::string deep(5000, '[');
  EXPECT_THAT(error_of("{{ x }}", "{\"x\": " + deep + std::string(5000, ']') + "}"),
              HasSubstr("100 deep"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ 5 // 0 }}"), HasSubstr("division by zero"));
}

// Templates with a part cut out, doubled or changed give a text or one error with its place.
TEST(ChatTemplates, WrongOnesGiveOneError) {
  const Json expected = Json::parse(read_file(project_file("tests/fixtures/chat/expected.json")));
  std::mt19937 random(7);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const std::string odd = "{}%#'\"|()[].-+~*/=<>\\\n x1_";
  int failures = 0;
  for (int round = 0; round < 30; ++round) {
    for (size_t i = 0; i < expected.at("cases").size(); i += 28) {
      const Json& test = expected["cases"][(i + below(28)) % expected["cases"].size()];
      std::string source = template_source(test.at("template").get<std::string>());
      for (size_t changes = 1 + below(3); changes > 0; --changes) {
        const size_t at = below(source.size()), count = below(8);
        switch (below(3)) {
          case 0:
            source.erase(at, count);
            break;
          case 1:
            source.insert(below(source.size()), source.substr(at, count));
            break;
          default:
            source[at] = odd[below(odd.size())];
        }
        if (source.empty()) source = "x";
      }
      try {
        ChatTemplate(source, "t").render(variables_of(expected, test), fixed_time());
      } catch (const Error& error) {
        ++failures;
        EXPECT_THAT(error.what(), testing::MatchesRegex("t:[0-9]+:[0-9]+: (.|\n)*\\."));
      }
    }
  }
  EXPECT_GT(failures, 100);
}

}  // namespace
}  // namespace tapestry
