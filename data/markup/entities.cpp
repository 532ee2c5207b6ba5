#include "data/markup/entities.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "data/files/utf8.h"

namespace tapestry {
namespace {

// XML's five, and those of HTML that stand in texts most.
constexpr std::pair<std::string_view, char32_t> kNames[] = {
    {"amp", U'&'},      {"lt", U'<'},      {"gt", U'>'},       {"quot", U'"'},
    {"apos", U'\''},    {"nbsp", 0xA0},    {"ensp", 0x2002},   {"emsp", 0x2003},
    {"thinsp", 0x2009}, {"ndash", 0x2013}, {"mdash", 0x2014},  {"lsquo", 0x2018},
    {"rsquo", 0x2019},  {"sbquo", 0x201A}, {"ldquo", 0x201C},  {"rdquo", 0x201D},
    {"bdquo", 0x201E},  {"bull", 0x2022},  {"hellip", 0x2026}, {"lsaquo", 0x2039},
    {"rsaquo", 0x203A}, {"laquo", 0xAB},   {"raquo", 0xBB},    {"euro", 0x20AC},
    {"pound", 0xA3},    {"yen", 0xA5},     {"cent", 0xA2},     {"sect", 0xA7},
    {"copy", 0xA9},     {"reg", 0xAE},     {"trade", 0x2122},  {"deg", 0xB0},
    {"plusmn", 0xB1},   {"sup2", 0xB2},    {"sup3", 0xB3},     {"micro", 0xB5},
    {"middot", 0xB7},   {"ordf", 0xAA},    {"ordm", 0xBA},     {"frac12", 0xBD},
    {"frac14", 0xBC},   {"times", 0xD7},   {"divide", 0xF7},   {"iexcl", 0xA1},
    {"iquest", 0xBF},   {"szlig", 0xDF},   {"Agrave", 0xC0},   {"agrave", 0xE0},
    {"Aacute", 0xC1},   {"aacute", 0xE1},  {"Acirc", 0xC2},    {"acirc", 0xE2},
    {"Atilde", 0xC3},   {"atilde", 0xE3},  {"Auml", 0xC4},     {"auml", 0xE4},
    {"Aring", 0xC5},    {"aring", 0xE5},   {"AElig", 0xC6},    {"aelig", 0xE6},
    {"Ccedil", 0xC7},   {"ccedil", 0xE7},  {"Egrave", 0xC8},   {"egrave", 0xE8},
    {"Eacute", 0xC9},   {"eacute", 0xE9},  {"Ecirc", 0xCA},    {"ecirc", 0xEA},
    {"Euml", 0xCB},     {"euml", 0xEB},    {"igrave", 0xEC},   {"Iacute", 0xCD},
    {"iacute", 0xED},   {"icirc", 0xEE},   {"iuml", 0xEF},     {"Ntilde", 0xD1},
    {"ntilde", 0xF1},   {"ograve", 0xF2},  {"Oacute", 0xD3},   {"oacute", 0xF3},
    {"ocirc", 0xF4},    {"otilde", 0xF5},  {"Ouml", 0xD6},     {"ouml", 0xF6},
    {"Oslash", 0xD8},   {"oslash", 0xF8},  {"ugrave", 0xF9},   {"Uacute", 0xDA},
    {"uacute", 0xFA},   {"ucirc", 0xFB},   {"Uuml", 0xDC},     {"uuml", 0xFC},
    {"OElig", 0x152},   {"oelig", 0x153},  {"Scaron", 0x160},  {"scaron", 0x161},
};
constexpr size_t kLongest = 32;  // bytes of a name

bool is_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  });
}

// Controls and characters that end lines are no text, and what UTF-8 cannot have is no character.
bool is_text(uint32_t code) {
  return code >= 0x20 && !(code >= 0x7F && code < 0xA0) && code != 0x2028 && code != 0x2029 &&
         !(code >= 0xD800 && code < 0xE000) && code <= 0x10FFFF;
}

// Of "#228" or "#xE4"; false if it is no number.
bool read_number(std::string_view name, std::optional<char32_t>& character) {
  name.remove_prefix(1);
  const bool hex = name.starts_with('x') || name.starts_with('X');
  if (hex) name.remove_prefix(1);
  uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), code, hex ? 16 : 10);
  if (name.empty() || end != name.data() + name.size()) return false;
  if (error == std::errc() && is_text(code)) character = static_cast<char32_t>(code);
  return true;
}

}  // namespace

Entity entity_at(std::string_view text, size_t at) {
  if (text[at] != '&') return {};
  const std::string_view rest = text.substr(at + 1, kLongest + 1);
  const size_t end = rest.find(';');
  if (end == std::string_view::npos) return {};
  const std::string_view name = rest.substr(0, end);
  Entity entity{.length = end + 2, .character = {}};
  if (name.starts_with('#')) return read_number(name, entity.character) ? entity : Entity{};
  if (!is_name(name)) return {};
  const auto* const known =
      std::ranges::find(kNames, name, &std::pair<std::string_view, char32_t>::first);
  if (known != std::end(kNames)) entity.character = known->second;
  return entity;
}

std::string with_entities(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace tapestry
