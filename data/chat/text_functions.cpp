#include "data/chat/text_functions.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "data/files/utf8.h"

namespace tapestry::jinja {
namespace {

std::string upper_case(std::string_view text) {
  std::string upper;
  icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())})
      .toUpper(icu::Locale::getRoot())
      .toUTF8String(upper);
  return upper;
}

std::string title_case(std::string_view character) {
  size_t at = 0;
  const auto c = static_cast<UChar32>(next_code_point(character, at));
  std::string title;
  append_utf8(title, static_cast<char32_t>(u_totitle(c)));
  // Characters that become several have no single title form: "ß" is "Ss".
  if (u_totitle(c) == c) {
    const std::string upper = upper_case(character);
    const size_t first = upper.empty() ? 0 : [&] {
      size_t end = 0;
      next_code_point(upper, end);
      return end;
    }();
    title = upper.substr(0, first) + lower_case(upper.substr(first));
  }
  return title;
}

bool is_cased(char32_t c) { return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED) != 0; }

}  // namespace

std::string with_case(std::string_view text, Case wanted) {
  if (wanted == Case::kLower) return lower_case(text);
  if (wanted == Case::kUpper) return upper_case(text);
  std::string result;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool cased = is_cased(next_code_point(text, at));
    const std::string_view character = text.substr(begin, at - begin);
    result += in_word ? lower_case(character) : title_case(character);
    in_word = wanted == Case::kCapitalized || cased;
  }
  return result;
}

std::string stripped(std::string_view text, const std::string* set, bool left, bool right) {
  const std::u32string characters = decode_utf8(text);
  const std::u32string wanted = set != nullptr ? decode_utf8(*set) : std::u32string();
  const auto goes = [&](char32_t c) {
    return set != nullptr ? wanted.find(c) != std::u32string::npos : is_space(c);
  };
  size_t begin = 0, end = characters.size();
  while (left && begin < end && goes(characters[begin])) ++begin;
  while (right && end > begin && goes(characters[end - 1])) --end;
  std::string result;
  for (; begin < end; ++begin) append_utf8(result, characters[begin]);
  return result;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view with,
                     int64_t count) {
  std::string result;
  size_t at = 0;
  while (count != 0) {
    if (old.empty()) {  // between all characters
      result += with;
      if (at >= text.size()) return result;
      const size_t begin = at;
      next_code_point(text, at);
      result += text.substr(begin, at - begin);
    } else {
      const size_t found = text.find(old, at);
      if (found == std::string_view::npos) break;
      result += text.substr(at, found - at);
      result += with;
      at = found + old.size();
    }
    if (count > 0) --count;
  }
  return result += text.substr(at);
}

std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t most,
                               bool from_right) {
  std::vector<std::string> parts;
  while (most < 0 || std::ssize(parts) < most) {
    const size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    const size_t after = found + separator.size();
    parts.emplace_back(from_right ? text.substr(after) : text.substr(0, found));
    text = from_right ? text.substr(0, found) : text.substr(after);
  }
  parts.emplace_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> split_on_space(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  const auto skip = [&](size_t at, bool space) {
    while (at < text.size()) {
      size_t next = at;
      if (is_space(next_code_point(text, next)) != space) break;
      at = next;
    }
    return at;
  };
  for (size_t at = skip(0, true); at < text.size(); at = skip(at, true)) {
    if (most >= 0 && std::ssize(parts) == most) {
      parts.push_back(stripped(text.substr(at), nullptr, false, true));
      break;
    }
    const size_t end = skip(at, false);
    parts.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

}  // namespace tapestry::jinja
