// UTF-8 and the few Unicode facts that text files and metrics need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tapestry {

/// Stands for an ill-formed byte.
inline constexpr char32_t kReplacementCharacter = 0xFFFD;

/// Byte offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7: no
/// surrogates, no overlong forms, nothing above U+10FFFF), or npos when `text` is well formed.
size_t find_invalid_utf8(std::string_view text);
/// True if ill-formed text has no character of UTF-8 beyond ASCII either: then it is most likely in
/// a single-byte encoding such as Latin-1.
bool looks_single_byte(std::string_view text);

/// The code point that starts at `position`, which moves past it. An ill-formed byte gives U+FFFD
/// and moves by one.
char32_t next_code_point(std::string_view text, size_t& position);

/// Number of code points of well-formed `text`.
int64_t count_code_points(std::string_view text);

/// Code points of `text`; ill-formed bytes give U+FFFD each.
std::u32string decode_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t code_point);

/// White space as Python's str.split() and str.strip() see it.
bool is_space(char32_t code_point);

/// A letter, a digit or another number, or _: what Python's \w matches.
bool is_word_character(char32_t code_point);

/// White space, and characters that only change how others are shown: controls, format characters
/// (U+200B, U+2060, U+FEFF, U+00AD, marks of direction), selectors and fillers. Not the few format
/// characters that have a shape, such as U+0600.
bool is_invisible(char32_t code_point);

/// True when `text` holds nothing that can be seen: is_invisible() is true of each character.
bool is_blank(std::string_view text);

/// `text` without the white space at its ends, as Python's str.strip().
std::string_view strip(std::string_view text);

/// Lower case as Python's str.lower(): the full mapping of Unicode without a language's own rules.
/// Ill-formed bytes give U+FFFD each.
std::string lower_case(std::string_view text);

}  // namespace tapestry
