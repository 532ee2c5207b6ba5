#include "data/tokenizers/parts/unicode_text.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <memory>

#include "core/base/error.h"

namespace tapestry::tokenizers {
namespace {

void check_status(UErrorCode status, const char* what) {
  check(U_SUCCESS(status), "text", "ICU cannot ", what, ": ", u_errorName(status), '.');
}

const icu::Normalizer2& normalizer_of(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalForm::kNfc:
      found = icu::Normalizer2::getNFCInstance(status);
      break;
    case NormalForm::kNfd:
      found = icu::Normalizer2::getNFDInstance(status);
      break;
    case NormalForm::kNfkc:
      found = icu::Normalizer2::getNFKCInstance(status);
      break;
    case NormalForm::kNfkd:
      found = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  check_status(status, "normalise");
  return *found;
}

uint32_t category(char32_t c) { return U_GET_GC_MASK(static_cast<UChar32>(c)); }

}  // namespace

void to_normal_form(NormalForm form, std::string& text) {
  if (is_ascii(text)) return;
  std::string result;
  result.reserve(text.size());
  icu::StringByteSink<std::string> sink(&result);
  UErrorCode status = U_ZERO_ERROR;
  normalizer_of(form).normalizeUTF8(0, text, sink, nullptr, status);
  check_status(status, "normalise");
  text = std::move(result);
}

void to_normal_form(NormalForm form, PlacedText& text) {
  if (!text.from) return to_normal_form(form, text.text);
  const icu::Normalizer2& normalizer = normalizer_of(form);
  TextWriter writer(text);
  const std::string_view whole = text.text;
  for (size_t begin = 0, end = 0; begin < whole.size(); begin = end) {
    next_code_point(whole, end);
    for (size_t next = end; end < whole.size(); end = next) {
      const char32_t c = next_code_point(whole, next);
      if (normalizer.hasBoundaryBefore(static_cast<UChar32>(c))) break;
    }
    std::string segment(whole.substr(begin, end - begin));
    to_normal_form(form, segment);
    writer.write(segment, begin, end);
  }
  writer.finish();
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}
bool is_white_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }
bool is_number(char32_t c) { return (category(c) & U_GC_N_MASK) != 0; }
bool is_punctuation(char32_t c) {
  const bool ascii = (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
                     (c >= '{' && c <= '~');
  return ascii || (category(c) & U_GC_P_MASK) != 0;
}
bool is_mark(char32_t c) { return (category(c) & U_GC_M_MASK) != 0; }
bool is_nonspacing_mark(char32_t c) { return (category(c) & U_GC_MN_MASK) != 0; }
bool is_other(char32_t c) { return (category(c) & U_GC_C_MASK) != 0; }

bool is_ideograph(char32_t c) {
  static constexpr char32_t kBlocks[][2] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const auto& block) { return c >= block[0] && c <= block[1]; });
}

void append_lower_case(std::string& out, char32_t c) {
  if (c == 0x130) {  // the one character that becomes two
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
}

std::string_view well_formed(std::string_view text, std::string& buffer) {
  if (find_invalid_utf8(text) == std::string_view::npos) return text;
  buffer.clear();
  for (size_t i = 0; i < text.size();) append_utf8(buffer, next_code_point(text, i));
  return buffer;
}

std::string repaired(std::string_view bytes) {
  std::string out;
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t i = 0; i < size;) {
    const int64_t begin = i;
    UChar32 c;
    U8_NEXT(bytes.data(), i, size, c);
    // ICU's iteration stops behind the longest beginning of a character.
    if (c < 0) {
      append_utf8(out, 0xFFFD);
    } else {
      out.append(bytes, static_cast<size_t>(begin), static_cast<size_t>(i - begin));
    }
  }
  return out;
}

std::vector<size_t> grapheme_ends(std::string_view text) {
  thread_local std::unique_ptr<icu::BreakIterator> breaks;
  UErrorCode status = U_ZERO_ERROR;
  if (!breaks) {
    breaks.reset(icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
    check_status(status, "find graphemes");
  }
  const icu::UnicodeString utf16 = icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  breaks->setText(utf16);
  std::vector<size_t> ends;
  size_t byte = 0;
  int32_t unit = 0;
  breaks->first();
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) {
    while (unit < end) unit += next_code_point(text, byte) > 0xFFFF ? 2 : 1;
    ends.push_back(byte);
  }
  return ends;
}

}  // namespace tapestry::tokenizers
