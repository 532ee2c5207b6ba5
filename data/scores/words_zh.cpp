// sacreBLEU's rules for Chinese: every character of these blocks is a word, the rest is split as by
// 13a, without its entities.
#include <algorithm>

#include "data/files/utf8.h"
#include "data/scores/punctuation.h"
#include "data/scores/words.h"

namespace tapestry::word_rules_of {
namespace {

struct Range {
  char32_t first, last;
};

// sacreBLEU compares strings, and its two ranges above U+FFFF are strings of two characters:
// "U+2000 0" to "U+2A6D 6" holds every character from U+2001 to U+2A6D, and no ideograph of the
// second plane is Chinese. Figures can be compared only if that is so here, too.
constexpr Range kChinese[] = {
    {0x2001, 0x2A6D},                                      // arrows, mathematics, boxes, symbols
    {0x2E80, 0x2EFF}, {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF},  // radicals
    {0x3000, 0x303F},                                      // punctuation
    {0x3100, 0x312F}, {0x31A0, 0x31BF},                    // Bopomofo
    {0x31C0, 0x31EF}, {0x3200, 0x32FF}, {0x3300, 0x33FF},  // strokes, enclosed, compatibility
    {0x3400, 0x4DB5}, {0x4E00, 0x9FBB},                    // ideographs
    {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9},  // compatibility ideographs
    {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F},                    // vertical forms
    {0xFF00, 0xFFEF},                                      // full and half width
};

bool is_chinese(char32_t c) {
  return std::any_of(std::begin(kChinese), std::end(kChinese),
                     [c](const Range& range) { return range.first <= c && c <= range.last; });
}

}  // namespace

WordRule::Split chinese(const std::string&) {
  return [](std::string_view line) {
    return scores::split_western(scores::set_apart(decode_utf8(strip(line)), is_chinese));
  };
}

}  // namespace tapestry::word_rules_of
