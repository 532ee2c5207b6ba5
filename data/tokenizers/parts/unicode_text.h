// Facts of Unicode that the parts of a tokenizer.json ask for; private to data/tokenizers/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/files/utf8.h"
#include "data/tokenizers/parts/placed_text.h"

namespace tapestry::tokenizers {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// Unicode annex 15. `text` is well-formed UTF-8.
void to_normal_form(NormalForm form, std::string& text);

/// The same for a text with places: characters that are normalised together get one place.
void to_normal_form(NormalForm form, PlacedText& text);

/// Calls f(code point, its bytes) for each character of a well-formed text.
template <class F>
void for_each_character(std::string_view text, F f) {
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = next_code_point(text, i);
    f(c, text.substr(begin, i - begin));
  }
}

bool is_ascii(std::string_view text);
bool is_white_space(char32_t c);      ///< Unicode's White_Space
bool is_number(char32_t c);           ///< categories N*
bool is_punctuation(char32_t c);      ///< ASCII's, and categories P*
bool is_mark(char32_t c);             ///< categories M*
bool is_nonspacing_mark(char32_t c);  ///< Mn
bool is_other(char32_t c);            ///< categories C*
bool is_ideograph(char32_t c);        ///< of the blocks whose characters BERT parts
/// Appends the lower case of a character, without regard to its neighbours.
void append_lower_case(std::string& out, char32_t c);

/// Well-formed UTF-8 as it is; else each ill-formed byte becomes U+FFFD, in `buffer`.
std::string_view well_formed(std::string_view text, std::string& buffer);
/// Well-formed UTF-8 of bytes: the longest beginning of a character that goes no further becomes
/// one U+FFFD (Unicode 15, section 3.9, as WHATWG decodes).
std::string repaired(std::string_view bytes);

/// The ends of the extended grapheme clusters (Unicode annex 29) of a well-formed text.
std::vector<size_t> grapheme_ends(std::string_view text);

}  // namespace tapestry::tokenizers
