#include "data/files/utf8.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "core/base/error.h"

namespace tapestry {
namespace {

// Returns the code point at `position` and moves behind it; a negative number, and any later
// position, if none starts there.
UChar32 next_or_negative(std::string_view text, int64_t& position) {
  const auto size = static_cast<int64_t>(text.size());
  UChar32 c;
  U8_NEXT(text.data(), position, size, c);
  return c;
}

const UCaseMap* case_map() {
  const auto open = [] {
    UErrorCode status = U_ZERO_ERROR;
    UCaseMap* map = ucasemap_open("", 0, &status);  // of no language: Turkish has rules of its own
    check(U_SUCCESS(status), "text", "ICU has no case map: ", u_errorName(status), '.');
    return map;
  };
  static const std::unique_ptr<UCaseMap, decltype(&ucasemap_close)> map(open(), ucasemap_close);
  return map.get();
}

}  // namespace

bool looks_single_byte(std::string_view text) {
  int64_t position = 0;
  while (position < static_cast<int64_t>(text.size())) {
    constexpr UChar32 kLastOfAscii = 0x7F;
    if (next_or_negative(text, position) > kLastOfAscii) return false;
  }
  return true;
}

size_t find_invalid_utf8(std::string_view text) {
  for (int64_t i = 0; i < static_cast<int64_t>(text.size());) {
    const int64_t start = i;
    if (next_or_negative(text, i) < 0) return static_cast<size_t>(start);
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  auto after = static_cast<int64_t>(position);
  const UChar32 c = next_or_negative(text, after);
  position = c < 0 ? position + 1 : static_cast<size_t>(after);
  return c < 0 ? kReplacementCharacter : static_cast<char32_t>(c);
}

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return !U8_IS_TRAIL(byte); });
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) out.push_back(next_code_point(text, i));
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  char bytes[U8_MAX_LENGTH];
  int length = 0;
  U8_APPEND_UNSAFE(bytes, length, c);
  out.append(bytes, static_cast<size_t>(length));
}

bool is_space(char32_t c) { return u_isspace(static_cast<UChar32>(c)); }

bool is_word_character(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return c == U'_' || u_isalpha(point) ||
         u_getIntPropertyValue(point, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool is_invisible(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  if (u_hasBinaryProperty(point, UCHAR_PREPENDED_CONCATENATION_MARK)) return false;
  return u_isspace(point) || u_iscntrl(point) || u_charType(point) == U_FORMAT_CHAR ||
         u_hasBinaryProperty(point, UCHAR_DEFAULT_IGNORABLE_CODE_POINT);
}

bool is_blank(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (!is_invisible(next_code_point(text, i))) return false;
  }
  return true;
}

std::string_view strip(std::string_view text) {
  size_t first = text.size(), last = text.size();
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is_space(next_code_point(text, at))) continue;
    if (first == text.size()) first = begin;
    last = at;
  }
  return text.substr(first, last - first);
}

std::string lower_case(std::string_view text) {
  if (find_invalid_utf8(text) != std::string_view::npos) {  // ICU replaces in its own way
    std::string repaired;
    for (size_t i = 0; i < text.size();) append_utf8(repaired, next_code_point(text, i));
    return lower_case(repaired);
  }
  constexpr size_t kMostBytes = std::numeric_limits<int32_t>::max() / 2;
  check(text.size() <= kMostBytes, "text", "lower case of ", text.size(), " bytes, expected ",
        kMostBytes, " at most.");
  std::string out(text.size(), '\0');
  const auto lower = [&] {
    UErrorCode status = U_ZERO_ERROR;
    const int32_t size =
        ucasemap_utf8ToLower(case_map(), out.data(), static_cast<int32_t>(out.size()), text.data(),
                             static_cast<int32_t>(text.size()), &status);
    check(U_SUCCESS(status) || status == U_BUFFER_OVERFLOW_ERROR, "text",
          "ICU cannot lower the case: ", u_errorName(status), '.');
    const bool fits = static_cast<size_t>(size) <= out.size();
    out.resize(static_cast<size_t>(size));
    return fits;
  };
  if (!lower()) lower();  // U+0130 is longer in lower case
  return out;
}

}  // namespace tapestry
