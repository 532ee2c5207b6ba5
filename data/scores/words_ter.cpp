// Tercom's Normalizer, as sacreBLEU has it.
#include "data/files/utf8.h"
#include "data/scores/punctuation.h"
#include "data/scores/ter.h"

namespace tapestry {
namespace {

using scores::Symbols;

bool is_any_of(char32_t c, std::u32string_view set) {
  return set.find(c) != std::u32string_view::npos;
}

bool is_asian_punctuation(char32_t c) {
  return c == 0x3001 || c == 0x3002 || (c >= 0x3008 && c <= 0x3011) ||
         (c >= 0x3014 && c <= 0x301F) || (c >= 0xFF61 && c <= 0xFF65) || c == 0x30FB ||
         is_any_of(c, U"\uFF0E\uFF0C\uFF1F\uFF1A\uFF1B\uFF01\uFF02\uFF08\uFF09");
}

// Each is a word of its own. The range of enclosed letters ends at U+3F22, as there. Kana stay
// together, except those that it holds: the rules for them begin at the start of the text, where
// a space stands.
bool is_asian_word(char32_t c) {
  return (c >= 0x2E80 && c <= 0x2EFF) || (c >= 0x31C0 && c <= 0x31EF) ||
         (c >= 0x3200 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0xFE30 && c <= 0xFE4F) || is_asian_punctuation(c);
}

bool is_punctuation(char32_t c) { return is_any_of(c, U".,?:;!\"()"); }

// " 's " of "'s ".
Symbols split_possessives(const Symbols& text) {
  Symbols out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, U"'s ") == 0) out.push_back(U' ');
    out.push_back(text[i]);
  }
  return out;
}

}  // namespace

std::u32string tercom_words(std::string_view line, const TerOptions& options) {
  std::string bytes = options.case_sensitive ? std::string(line) : lower_case(line);
  if (options.normalized) scores::replace_entities(bytes);
  Symbols text = decode_utf8(bytes);
  if (options.normalized) {
    text = scores::set_apart(U' ' + text + U' ', scores::is_always_apart);
    text = scores::set_points_apart(split_possessives(text));
    if (options.asian_support) text = scores::set_apart(text, is_asian_word);
  }
  if (options.no_punct) {
    std::erase_if(text, is_punctuation);
    if (options.asian_support) std::erase_if(text, is_asian_punctuation);
  }
  return text;
}

}  // namespace tapestry
