#include "core/base/printable.h"

#include <cstdio>

namespace tapestry {

std::string printable(std::string_view text) {
  constexpr unsigned char kFirstVisible = 0x20, kDelete = 0x7f;
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || (byte >= kFirstVisible && byte != kDelete)) {
      shown += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", byte);
    shown += escape;
  }
  return shown;
}

std::string with_short_words(std::string_view text) {
  constexpr size_t kLongest = 500, kBegin = 200, kEnd = 100;
  constexpr std::string_view kSpace = " \t\n";
  // Never cuts within a UTF-8 character.
  const auto is_inside = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
  };
  std::string shown;
  while (!text.empty()) {
    const size_t length = std::min(text.find_first_of(kSpace), text.size());
    const std::string_view word = text.substr(0, length);
    if (length <= kLongest) {
      shown += word;
    } else {
      size_t begin = kBegin, end = length - kEnd;
      while (begin > 0 && is_inside(word[begin])) --begin;
      while (end < length && is_inside(word[end])) ++end;
      shown += word.substr(0, begin);
      shown += "[... " + std::to_string(end - begin) + " bytes ...]";
      shown += word.substr(end);
    }
    const size_t behind = std::min(text.find_first_not_of(kSpace, length), text.size());
    shown += text.substr(length, behind - length);
    text.remove_prefix(behind);
  }
  return shown;
}

}  // namespace tapestry
