// Filters of one value: texts, numbers, JSON.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/error.h"
#include "data/chat/functions.h"
#include "data/chat/text_functions.h"
#include "data/chat/value_text.h"
#include "data/files/utf8.h"

namespace tapestry::jinja {
namespace {

Value tojson(const Value& self, const Bound& arguments) {
  JsonStyle style{.ensure_ascii = arguments.flag(0, false), .sort_keys = arguments.flag(3, false)};
  if (arguments.has(1) && !arguments[1].is_none()) {
    const std::string* const text = arguments[1].get<std::string>();
    const int64_t width = text != nullptr ? 0 : arguments.integer(1, 0);
    if (width > 100) throw Problem("an indent of more than 100");
    style.in_lines = true;
    style.comma.assign(1, ',');
    style.indent.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
    if (text != nullptr) style.indent = *text;
  }
  if (arguments.has(2) && !arguments[2].is_none()) {
    const Values separators = items_of(arguments[2]);
    if (separators.size() != 2) throw Problem("'tojson' takes two separators");
    style.comma = text_of(separators[0]);
    style.colon = text_of(separators[1]);
  }
  return to_json(self, style);
}

Value indent(const Value& self, const Bound& arguments) {
  const std::string* const given = arguments[0].get<std::string>();
  const int64_t width = given != nullptr ? 0 : arguments.integer(0, 4);
  if (width < 0 || width > 1000) throw Problem("'indent' takes a width from 0 to 1000");
  std::string space(static_cast<size_t>(width), ' ');
  if (given != nullptr) space = *given;
  const bool first = arguments.flag(1, false), blank = arguments.flag(2, false);
  std::string text = to_text(self);
  text += '\n';
  const std::vector<std::string> lines = lines_of(text);
  text = first ? space : std::string();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += '\n';
    if (i > 0 && (blank || !lines[i].empty())) text += space;
    text += lines[i];
  }
  return text;
}

// Jinja's filter begins words behind other characters than str.title() does.
Value title(const Value& self, const Bound&) {
  std::string result;
  bool in_word = false;
  const std::string text = to_text(self);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    const std::string character = text.substr(begin, at - begin);
    result += with_case(character, in_word ? Case::kLower : Case::kUpper);
    in_word = !is_space(c) && std::u32string_view(U"-({[<").find(c) == std::u32string_view::npos;
  }
  return result;
}

template <Case kCase>
Value cased(const Value& self, const Bound&) {
  return with_case(to_text(self), kCase);
}

Value trim(const Value& self, const Bound& arguments) {
  const bool has_set = arguments.has(0) && !arguments[0].is_none();
  const std::string set = has_set ? arguments.text(0) : "";
  return stripped(to_text(self), has_set ? &set : nullptr, true, true);
}

Value replace(const Value& self, const Bound& arguments) {
  const bool has_count = arguments.has(2) && !arguments[2].is_none();
  return replaced(to_text(self), to_text(arguments[0]), to_text(arguments[1]),
                  has_count ? arguments.integer(2, -1) : -1);
}

Value or_default(const Value& self, const Bound& arguments) {
  const bool takes = self.is_undefined() || (arguments.flag(1, false) && !truth(self));
  if (!takes) return self;
  return arguments.has(0) ? arguments[0] : Value("");
}

template <class Number>
bool read_number(const std::string& text, Number& number) {
  const std::string digits = stripped(text, nullptr, true, true);
  const size_t sign = digits.starts_with('+') ? 1 : 0;
  const char* const end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data() + sign, end, number);
  return result.ec == std::errc() && result.ptr == end;
}

Value to_int(const Value& self, const Bound& arguments) {
  int64_t whole = 0;
  if (to_integer(self, whole)) return whole;
  double number = 0;
  const std::string* const text = self.get<std::string>();
  if (text != nullptr && read_number(*text, whole)) return whole;
  const bool is_number = text != nullptr ? read_number(*text, number) : to_number(self, number);
  if (is_number && std::abs(number) < 9e18) return static_cast<int64_t>(number);
  return arguments.has(0) ? arguments[0] : Value(int64_t{0});
}

Value to_float(const Value& self, const Bound& arguments) {
  double number = 0;
  const std::string* const text = self.get<std::string>();
  if (text != nullptr ? read_number(*text, number) : to_number(self, number)) return number;
  return arguments.has(0) ? arguments[0] : Value(0.0);
}

double number_of(const Value& value) {
  double number = 0;
  check_defined(value);
  if (!to_number(value, number)) throw Problem(concat("expected a number, got ", type_name(value)));
  return number;
}

Value absolute(const Value& self, const Bound&) {
  int64_t whole = 0;
  if (!to_integer(self, whole)) return std::abs(number_of(self));
  if (whole == INT64_MIN) throw Problem("the number has more than 64 bits");
  return std::abs(whole);
}

Value rounded(const Value& self, const Bound& arguments) {
  const double scale = std::pow(10.0, static_cast<double>(arguments.integer(0, 0)));
  const double number = number_of(self) * scale;
  const std::string method = arguments.text(1, "common");
  if (method == "ceil") return std::ceil(number) / scale;
  if (method == "floor") return std::floor(number) / scale;
  if (method != "common") throw Problem("'round' rounds by common, ceil or floor");
  return std::nearbyint(number) / scale;
}

const Method kValueFilters[] = {
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, tojson},
    {"indent", {"width", "first", "blank"}, 0, indent},
    {"title", {}, 0, title},
    {"upper", {}, 0, cased<Case::kUpper>},
    {"lower", {}, 0, cased<Case::kLower>},
    {"capitalize", {}, 0, cased<Case::kCapitalized>},
    {"trim", {"chars"}, 0, trim},
    {"replace", {"old", "new", "count"}, 2, replace},
    {"string", {}, 0, [](const Value& self, const Bound&) -> Value { return to_text(self); }},
    {"safe", {}, 0, [](const Value& self, const Bound&) -> Value { return to_text(self); }},
    {"default", {"default_value", "boolean"}, 0, or_default},
    {"d", {"default_value", "boolean"}, 0, or_default},
    {"int", {"default", "base"}, 0, to_int},
    {"float", {"default"}, 0, to_float},
    {"abs", {}, 0, absolute},
    {"round", {"precision", "method"}, 0, rounded},
};

}  // namespace

std::span<const Method> value_filters() { return kValueFilters; }

}  // namespace tapestry::jinja
