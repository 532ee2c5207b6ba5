// Our own tokenizers cut a normalised text at spaces, and where letters, digits and other
// characters meet. Private to data/.
#pragma once

#include <cstdint>
#include <string_view>

namespace tapestry::tokenizers {

enum class CharacterClass : uint8_t { kLetter, kDigit, kOther };

/// The class of the character at `i`, which moves past it.
CharacterClass next_class(std::string_view text, size_t& i);

/// Calls f(part, begins_word) for each part of the words of a normalised text. The first word has
/// no mark unless `first_begins` or a space is before it. With `single_others` each character that
/// is neither letter nor digit is a part of its own.
template <class F>
void for_each_part(std::string_view text, bool first_begins, bool single_others, F f) {
  bool begins = first_begins;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == ' ') {
      begins = true;
      ++i;
      continue;
    }
    const size_t start = i;
    const CharacterClass own = next_class(text, i);
    size_t end = i;
    const bool alone = single_others && own == CharacterClass::kOther;
    while (!alone && i < text.size() && text[i] != ' ' && next_class(text, i) == own) end = i;
    i = end;
    f(text.substr(start, end - start), begins);
    begins = false;
  }
}

}  // namespace tapestry::tokenizers
