// mteval-v14.pl --international-tokenization: punctuation is apart unless numbers surround it,
// symbols always, in every script. A full stop behind a number at the end of a line stays, as
// there.
#include <unicode/uchar.h>

#include "data/files/utf8.h"
#include "data/scores/punctuation.h"
#include "data/scores/words.h"

namespace tapestry::word_rules_of {
namespace {

bool has_category(char32_t c, uint32_t mask) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & mask) != 0;
}
bool is_number(char32_t c) { return has_category(c, U_GC_N_MASK); }
bool is_punctuation(char32_t c) { return has_category(c, U_GC_P_MASK); }
bool is_symbol(char32_t c) { return has_category(c, U_GC_S_MASK); }

}  // namespace

WordRule::Split mteval_14_international(const std::string&) {
  return [](std::string_view line) {
    scores::Symbols text = scores::rewrite_pairs(
        decode_utf8(line),
        [](char32_t a, char32_t b) { return !is_number(a) && is_punctuation(b); },
        [](scores::Symbols& out, char32_t a, char32_t b) {
          out += {a, U' ', b, U' '};
        });
    text = scores::rewrite_pairs(
        text, [](char32_t a, char32_t b) { return is_punctuation(a) && !is_number(b); },
        [](scores::Symbols& out, char32_t a, char32_t b) {
          out += {U' ', a, U' ', b};
        });
    return scores::set_apart(text, is_symbol);
  };
}

}  // namespace tapestry::word_rules_of
