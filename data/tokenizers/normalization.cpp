#include "data/tokenizers/normalization.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry::tokenizers {
namespace {

constexpr char32_t kFullwidthTilde = 0xFF5E;
constexpr std::string_view kFullwidthTildeBytes = "\xEF\xBD\x9E";

// Characters that nmt_nfkc takes for a space, besides NFKC's.
bool is_nmt_space(char32_t c) {
  switch (c) {
    case 0x0009:  // tab
    case 0x000A:  // line feed
    case 0x000C:  // form feed
    case 0x000D:  // carriage return
    case 0x1680:  // ogham space mark
    case 0x200B:  // zero width space
    case 0x200C:  // zero width non-joiner
    case 0x200E:  // left-to-right mark
    case 0x200F:  // right-to-left mark
    case 0x2028:  // line separator
    case 0x2029:  // paragraph separator
    case 0xFEFF:  // zero width no-break space
    case 0xFFFD:  // replacement character
      return true;
    default:
      return false;
  }
}

// The control characters that nmt_nfkc leaves out.
bool is_nmt_nothing(char32_t c) {
  return (c >= 0x01 && c <= 0x1F && !is_nmt_space(c)) || c == 0x7F || c == 0x8F || c == 0x9F;
}

bool is_plain(char c) { return c >= ' ' && c <= '~'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

const icu::Normalizer2& nfkc_of_icu() {
  UErrorCode status = U_ZERO_ERROR;
  const auto* const nfkc = icu::Normalizer2::getNFKCInstance(status);
  check(U_SUCCESS(status), "tokenizer", "ICU has no NFKC: ", u_errorName(status), '.');
  return *nfkc;
}

icu::StringPiece piece_of(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

void to_nfkc(std::string& text) {
  const icu::Normalizer2& nfkc = nfkc_of_icu();
  UErrorCode status = U_ZERO_ERROR;
  if (nfkc.isNormalizedUTF8(piece_of(text), status) && U_SUCCESS(status)) return;
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  status = U_ZERO_ERROR;
  nfkc.normalizeUTF8(0, piece_of(text), sink, nullptr, status);
  check(U_SUCCESS(status), "tokenizer", "ICU cannot normalise: ", u_errorName(status), '.');
  text = std::move(out);
}

// Character by character (simple folding): U+00DF stays.
void to_folded_case(std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<UChar32>(next_code_point(text, i));
    append_utf8(out, static_cast<char32_t>(u_foldCase(c, U_FOLD_CASE_DEFAULT)));
  }
  text = std::move(out);
}

}  // namespace

Normalizer::Normalizer(const std::string& name)
    : nmt_(name.starts_with("nmt_")),
      nfkc_(name.find("nfkc") != std::string::npos),
      fold_case_(name.ends_with("_cf")) {}

std::string_view Normalizer::operator()(std::string_view text, std::string& buffer) const {
  // Most lines of English need nothing.
  if (std::all_of(text.begin(), text.end(), is_plain)) {
    if (!fold_case_ || std::none_of(text.begin(), text.end(), is_upper)) return text;
    buffer.assign(text);
    for (char& c : buffer) {
      if (is_upper(c)) c = static_cast<char>(c - 'A' + 'a');
    }
    return buffer;
  }
  constexpr char32_t kSpace = 0x2581;
  buffer.clear();
  for (size_t i = 0; i < text.size();) {
    if (is_plain(text[i])) {
      buffer.push_back(text[i++]);
      continue;
    }
    const size_t begin = i;
    const char32_t c = next_code_point(text, i);
    const bool ill_formed = i == begin + 1 && c == kReplacementCharacter;
    if (c == kSpace || (nmt_ && is_nmt_space(c) && !ill_formed)) {
      buffer.push_back(' ');
    } else if (!nmt_ || !is_nmt_nothing(c)) {
      append_utf8(buffer, c);
    }
  }
  if (nfkc_ || fold_case_) compose(buffer);
  return buffer;
}

void Normalizer::compose(std::string& text) const {
  const auto apply = [&](std::string& part) {
    to_nfkc(part);
    if (!fold_case_) return;
    to_folded_case(part);
    to_nfkc(part);
  };
  if (!nmt_ || text.find(kFullwidthTildeBytes) == std::string::npos) return apply(text);
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kFullwidthTildeBytes, begin), text.size());
    std::string part = text.substr(begin, end - begin);
    apply(part);
    out += part;
    if (end < text.size()) append_utf8(out, kFullwidthTilde);
    begin = end + kFullwidthTildeBytes.size();
  }
  text = std::move(out);
}

}  // namespace tapestry::tokenizers
