#include "data/utf8.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>

#include "core/error.h"

namespace tapestry {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// Length of the well-formed sequence at text[i], 0 when there is none.
int sequence_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) -> unsigned {
    return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u;
  };
  const auto trails = [&](size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const unsigned lead = byte(i);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  if (!trails(i + 1)) return 0;
  if (lead < 0xE0) return 2;
  const unsigned second = byte(i + 1);
  if (lead < 0xF0) {
    const bool overlong = lead == 0xE0 && second < 0xA0;
    const bool surrogate = lead == 0xED && second > 0x9F;
    return trails(i + 2) && !overlong && !surrogate ? 3 : 0;
  }
  const bool overlong = lead == 0xF0 && second < 0x90;
  const bool too_large = lead == 0xF4 && second > 0x8F;
  return trails(i + 2) && trails(i + 3) && !overlong && !too_large ? 4 : 0;
}

locale_t unicode_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  check(locale != nullptr, "text", "expected the C library's locale C.UTF-8, got none.");
  return locale;
}

// Letters around a sigma decide its form; combining marks, apostrophes and the like are looked
// through. The C library has no such table, so alphabetic stands for "cased" and punctuation for
// "ignorable".
bool is_cased(char32_t c) {
  const auto wide = static_cast<wint_t>(c);
  return iswupper_l(wide, unicode_locale()) || iswlower_l(wide, unicode_locale());
}

bool is_case_ignorable(char32_t c) {
  return c == U'\'' || c == U'.' || c == U':' || c == U'^' || c == U'`' || c == 0xA8 || c == 0xAD ||
         c == 0xAF || c == 0xB4 || c == 0xB7 || c == 0xB8 || (c >= 0x300 && c <= 0x36F) ||
         c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

bool is_final_sigma(const std::u32string& text, size_t i) {
  size_t before = i;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = i + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const int length = sequence_length(text, i);
    if (length == 0) return i;
    i += static_cast<size_t>(length);
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const int length = sequence_length(text, position);
  const auto lead = static_cast<unsigned char>(text[position]);
  if (length <= 1) {
    ++position;
    return length == 1 ? lead : kReplacement;
  }
  char32_t code_point = lead & (0xFFu >> (length + 1));
  for (int k = 1; k < length; ++k) {
    code_point = code_point << 6 | (static_cast<unsigned char>(text[position + k]) & 0x3Fu);
  }
  position += static_cast<size_t>(length);
  return code_point;
}

int64_t count_code_points(std::string_view text) {
  // Every byte but the trailing ones of a sequence starts a code point.
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) out.push_back(next_code_point(text, i));
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_blank(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (!is_space(next_code_point(text, i))) return false;
  }
  return true;
}

std::string lower_case(std::string_view text) {
  const std::u32string points = decode_utf8(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < points.size(); ++i) {
    const char32_t c = points[i];
    if (c == 0x130) {
      out += "i\xCC\x87";
    } else if (c == 0x3A3) {
      append_utf8(out, is_final_sigma(points, i) ? 0x3C2 : 0x3C3);
    } else {
      append_utf8(out, static_cast<char32_t>(towlower_l(static_cast<wint_t>(c), unicode_locale())));
    }
  }
  return out;
}

}  // namespace tapestry
