// What the config tree writes reads back to the same tree.
#include <gmock/gmock.h>

#include "apps/config/tree.h"
#include "data/files/utf8.h"
#include "tests/data/files/files.h"

namespace tapestry {
namespace {

using std::string_literals::operator""s;

ConfigNode read(const std::string& text) { return parse_config_text(text, "text", ""); }

// Equal trees have equal descriptions, whatever the strings hold.
std::string describe(const ConfigNode& node) {
  const auto exactly = [](const std::string& text) { return concat(text.size(), ':', text, ' '); };
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return "null ";
    case ConfigNode::Kind::kScalar:
      return exactly(node.text);
    case ConfigNode::Kind::kList:
    case ConfigNode::Kind::kMap:
      break;
  }
  std::string out = node.kind == ConfigNode::Kind::kList ? "[ " : "{ ";
  for (const ConfigNode& item : node.items) out += describe(item);
  for (const ConfigEntry& entry : node.entries) out += exactly(entry.key) + describe(entry.value);
  return out + (node.kind == ConfigNode::Kind::kList ? "] " : "} ");
}

ConfigNode string_node(const std::string& text) { return ConfigNode::scalar(text, true); }

const std::vector<std::string>& nasty_strings() {
  static const std::vector<std::string> strings = {"",
                                                   " ",
                                                   "a",
                                                   " a",
                                                   "a ",
                                                   "a: b",
                                                   "a:b",
                                                   "a:",
                                                   ":a",
                                                   ":",
                                                   "a #b",
                                                   "a#b",
                                                   "#",
                                                   "- a",
                                                   "-",
                                                   "--",
                                                   "---",
                                                   "...",
                                                   "--- a",
                                                   "? a",
                                                   "?",
                                                   "[a",
                                                   "a]",
                                                   "[]",
                                                   "{}",
                                                   "{a",
                                                   "a, b",
                                                   ",",
                                                   "*a",
                                                   "&a",
                                                   "!a",
                                                   "!!int 4",
                                                   "|",
                                                   ">",
                                                   "|-\n a",
                                                   "%a",
                                                   "%YAML 1.2",
                                                   "@a",
                                                   "`a",
                                                   "'a'",
                                                   "\"a\"",
                                                   "a'b",
                                                   "a\"b",
                                                   "\\",
                                                   "a\\nb",
                                                   "\\x41",
                                                   "true",
                                                   "True",
                                                   "FALSE",
                                                   "null",
                                                   "Null",
                                                   "~",
                                                   "yes",
                                                   "no",
                                                   "on",
                                                   "off",
                                                   "y",
                                                   "N",
                                                   "1",
                                                   "-1",
                                                   "+1",
                                                   "1.5",
                                                   ".5",
                                                   "1e-4",
                                                   "1E4",
                                                   "0x1F",
                                                   "0o17",
                                                   "017",
                                                   "1_000",
                                                   ".inf",
                                                   "-.inf",
                                                   ".nan",
                                                   "inf",
                                                   "nan",
                                                   "2020-01-01",
                                                   "12:30:45",
                                                   "1,000",
                                                   "<<",
                                                   "=",
                                                   "a\nb",
                                                   "\n",
                                                   "a\n",
                                                   "\n\na",
                                                   "a\r\nb",
                                                   "\r",
                                                   "\t",
                                                   "a\tb",
                                                   "\ta",
                                                   "a\t",
                                                   "\v\f\b",
                                                   "\x1B[0m",
                                                   "\x7F",
                                                   "a\0b"s,
                                                   "\0"s,
                                                   "Straße",
                                                   "München: #1",
                                                   "日本語",
                                                   "👍",
                                                   "\u0085",
                                                   "\u00A0",
                                                   "\u2028",
                                                   "a\u2029b",
                                                   "\uFEFF",
                                                   "\uFEFFa",
                                                   "\uFFFD",

                                                   "e\u0301",
                                                   "\u200B",
                                                   "C:\\data",
                                                   "/a/b c.de",
                                                   "~/a",
                                                   "$HOME",
                                                   "${a}",
                                                   "a=b",
                                                   "../a-b_c.d",
                                                   "\U0010FFFD",
                                                   std::string(2000, 'k'),
                                                   std::string(300, ' ') + "a",
                                                   "word " + std::string(500, 'x') + " word: word"};
  return strings;
}

TEST(ConfigText, EveryStringReadsBackAsItself) {
  for (const std::string& text : nasty_strings()) {
    SCOPED_TRACE(testing::PrintToString(text));
    ConfigNode list = ConfigNode::list();
    list.items = {string_node(text), string_node("b"), string_node(text)};
    ConfigNode maps = ConfigNode::list();
    maps.items.assign(2, ConfigNode::map());
    for (ConfigNode& map : maps.items) {
      map.entries.push_back({"key", {}, string_node(text)});
      map.entries.push_back({"list", {}, list});
    }
    ConfigNode root = ConfigNode::map();
    root.entries.push_back({"string", {}, string_node(text)});
    root.entries.push_back({"list", {}, list});
    root.entries.push_back({"maps", {}, maps});
    // Read back, an empty key is refused, and one of JSON that is longer than 1024 is none.
    const bool is_key = !text.empty() && text.size() < 1000;
    root.entries.push_back({is_key ? text : "text", {}, string_node(text)});
    for (const std::string& written : {to_yaml(root), to_json(root)}) {
      SCOPED_TRACE(written);
      EXPECT_EQ(describe(read(written)), describe(root));
    }
    EXPECT_EQ(describe(read(to_yaml(string_node(text)))), describe(string_node(text)));
  }
}

// A string must not come back as a number, true or null: the reader asks for quotes or a word.
TEST(ConfigText, StringsThatLookLikeOtherThingsKeepTheirQuotes) {
  for (const char* text : {"true", "No", "null", "~", "1", "-1", "1e-4", ".5", ".inf", ".NaN", "",
                           "0x1F", "1_000", "y"}) {
    EXPECT_TRUE(read(to_yaml(string_node(text))).quoted) << text;
    EXPECT_TRUE(read(to_json(string_node(text))).quoted) << text;
  }
}

TEST(ConfigText, EveryCodePointReadsBackAsItself) {
  for (const bool in_yaml : {true, false}) {
    ConfigNode list = ConfigNode::list();
    for (char32_t c = 0; c <= 0x10FFFF; ++c) {
      if (c == 0xD800) c = 0xE000;
      if (c > 0x3000 && c < 0xD700) c += 0x40;  // ideographs and syllables are all alike
      if (c > 0x20000 && c < 0x10FF00) c += 0x400;
      // Noncharacters: yaml-cpp writes U+FFFD for them.
      if ((c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF)) continue;
      std::string text;
      append_utf8(text, c);
      list.items.push_back(string_node(text));
      list.items.push_back(string_node("a" + text + "b"));
    }
    const ConfigNode again = read(in_yaml ? to_yaml(list) : to_json(list));
    ASSERT_EQ(again.items.size(), list.items.size());
    for (size_t i = 0; i < list.items.size(); ++i) {
      ASSERT_EQ(again.items[i].text, list.items[i].text)
          << testing::PrintToString(list.items[i].text);
    }
  }
}

TEST(ConfigText, OtherValuesReadBackAsThemselves) {
  for (const char* text :
       {"{}", "[]", "null", "a: {}", "a: []", "a: null", "a: [1, -2.5, true, null, word]",
        "a: [[1, 2], [], [3, [4]]]", "[{a: 1, b: [{c: 2}, {d: {}}]}, {e: 1e-9}]",
        "a: {b: {c: {d: 1}}}", "3", "word", "[a, {b: c}, []]"}) {
    const ConfigNode tree = read(text);
    EXPECT_EQ(describe(read(to_yaml(tree))), describe(tree)) << to_yaml(tree);
    EXPECT_EQ(to_yaml(read(to_yaml(tree))), to_yaml(tree));
  }
}

TEST(ConfigText, IsPleasantToRead) {
  const std::string text =
      "task: translation\n"
      "output_dir: \"/home/a b\"\n"
      "data:\n"
      "  train:\n"
      "    - source: a.en\n"
      "      target: a.de\n"
      "    - tsv: b.tsv\n"
      "  valid: []\n"
      "  image: {}\n"
      "training:\n"
      "  betas: [0.9, 0.98]\n"
      "  names: [first, \"second one\", \"3\"]\n"
      "  seed: 77\n"
      "  init_from: null\n";
  EXPECT_EQ(to_yaml(read(text)), text);
}

TEST(ConfigText, IllFormedUtf8IsRefusedWithItsPlace) {
  EXPECT_EQ(error_of(ErrorKind::kConfig, [] { read("a: b\nc: \"caf\xE9\"\n"); }),
            "text:2:4: the text is not UTF-8.");
  EXPECT_EQ(error_of(ErrorKind::kConfig, [] { read("caf\xE9: 1\n"); }),
            "text:1:1: the text is not UTF-8.");
}

}  // namespace
}  // namespace tapestry
