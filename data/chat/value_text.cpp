#include "data/chat/value_text.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry::jinja {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void append_hex(std::string& out, uint32_t number, int digits) {
  for (int i = digits - 1; i >= 0; --i) out += kHex[(number >> (4 * i)) & 15U];
}

// The shortest digits that give the number back; an exponent from 1e16 on and below 1e-4.
std::string float_text(double number, const char* infinity, const char* nan) {
  if (std::isnan(number)) return nan;
  if (std::isinf(number)) return concat(number < 0 ? "-" : "", infinity);
  char buffer[64];
  const auto fixed = std::abs(number);
  const bool plain = number == 0 || (fixed >= 1e-4 && fixed < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// What Python's str.isprintable() accepts.
bool is_printable(char32_t c) {
  switch (u_charType(static_cast<UChar32>(c))) {
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_SURROGATE:
    case U_PRIVATE_USE_CHAR:
    case U_UNASSIGNED:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
      return false;
    case U_SPACE_SEPARATOR:
      return c == ' ';
    default:
      return true;
  }
}

void append_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      append_hex(out, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    }
  }
  out += quote;
}

void append_escaped(std::string& out, char32_t c, bool ascii) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
  const size_t place = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
  if (place != std::string_view::npos) {
    out += '\\';
    out += kNames[place];
  } else if (c >= 0x10000 && ascii) {
    out += "\\u";
    append_hex(out, 0xD800 + ((c - 0x10000) >> 10), 4);
    out += "\\u";
    append_hex(out, 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
  } else if (c < 0x20 || (c >= 0x7F + 1 && ascii)) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    append_utf8(out, c);
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    if (const std::string* const text = value.get<std::string>()) {
      write_text(*text);
    } else if (const List* const list = value.as_list()) {
      write_all('[', list->items, ']', [&](const Value& item) { write(item); });
    } else if (const Dict* const dict = value.as_dict()) {
      write_members(*dict);
    } else if (const bool* const flag = value.get<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (const double* const number = value.get<double>()) {
      out_ += float_text(*number, "Infinity", "NaN");
    } else if (const int64_t* const whole = value.get<int64_t>()) {
      out_ += std::to_string(*whole);
    } else if (value.is_none()) {
      out_ += "null";
    } else {
      check_defined(value);
      throw Problem(concat("JSON has no '", type_name(value), "'"));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void write_text(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      append_escaped(out_, next_code_point(text, at), style_.ensure_ascii);
    }
    out_ += '"';
  }
  void write_members(const Dict& dict) {
    Members members = dict.members;
    if (style_.sort_keys) std::ranges::stable_sort(members, {}, &Member::first);
    write_all('{', members, '}', [&](const Member& member) {
      write_text(member.first);
      out_ += style_.colon;
      write(member.second);
    });
  }
  template <class Items, class WriteItem>
  void write_all(char open, const Items& items, char close, WriteItem write_item) {
    out_ += open;
    ++level_;
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) out_ += style_.comma;
      is_first = false;
      break_line();
      write_item(item);
    }
    --level_;
    if (!is_first) break_line();
    out_ += close;
  }
  void break_line() {
    if (!style_.in_lines) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += style_.indent;
  }

  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

void append_value(std::string& out, const Value& value) {
  if (const std::string* const text = value.get<std::string>()) {
    append_repr(out, *text);
  } else if (const List* const list = value.as_list()) {
    out += list->is_tuple ? '(' : '[';
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += ", ";
      append_value(out, list->items[i]);
    }
    if (list->is_tuple && list->items.size() == 1) out += ',';
    out += list->is_tuple ? ')' : ']';
  } else if (const Dict* const dict = value.as_dict()) {
    out += '{';
    for (size_t i = 0; i < dict->members.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, dict->members[i].first);
      out += ": ";
      append_value(out, dict->members[i].second);
    }
    out += '}';
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += to_text(value);
  }
}

}  // namespace

std::string to_text(const Value& value) {
  if (const std::string* const text = value.get<std::string>()) return *text;
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const bool* const flag = value.get<bool>()) return *flag ? "True" : "False";
  if (const int64_t* const number = value.get<int64_t>()) return std::to_string(*number);
  if (const double* const number = value.get<double>()) return float_text(*number, "inf", "nan");
  if (value.as_namespace() != nullptr || value.as_callable() != nullptr) {
    throw Problem(concat("a ", type_name(value), " is not text"));
  }
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace tapestry::jinja
