// Rewriting rules that several tokenizers of scores share. Private to data/scores.
#pragma once

#include <string_view>

#include "core/base/text.h"
#include "data/scores/ngrams.h"

namespace tapestry::scores {

inline bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

/// Undoes &quot; &amp; &lt; and &gt;, in this order.
void replace_entities(std::string& text);

/// Puts spaces around every symbol that `parts` is true of.
template <class Parts>
Symbols set_apart(const Symbols& text, Parts&& parts) {
  Symbols out;
  out.reserve(text.size() + text.size() / 2);
  for (const char32_t c : text) {
    if (parts(c)) {
      out += {U' ', c, U' '};
    } else {
      out.push_back(c);
    }
  }
  return out;
}

/// Walks over pairs of neighbours like a regular expression of two characters: a match consumes
/// both. `emit(out, a, b)` writes what stands for a match.
template <class Matches, class Emit>
Symbols rewrite_pairs(const Symbols& text, Matches&& matches, Emit&& emit) {
  Symbols out;
  out.reserve(text.size() + text.size() / 2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      emit(out, text[i], text[i + 1]);
      ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

/// ASCII punctuation, and the space, except apostrophe, comma, minus and full stop, which depend on
/// their neighbours.
bool is_always_apart(char32_t c);

/// Sets commas and full stops apart unless digits surround them, and a minus behind a digit.
Symbols set_points_apart(const Symbols& text);

/// mteval-v13a's language-dependent part: both of the above.
Symbols split_western(const Symbols& text);

}  // namespace tapestry::scores
