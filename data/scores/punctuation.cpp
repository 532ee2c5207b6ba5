#include "data/scores/punctuation.h"

namespace tapestry::scores {
namespace {

bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }
bool is_point(char32_t c) { return c == U'.' || c == U','; }

void emit_second_apart(Symbols& out, char32_t a, char32_t b) { out += {a, U' ', b, U' '}; }
void emit_first_apart(Symbols& out, char32_t a, char32_t b) { out += {U' ', a, U' ', b}; }

}  // namespace

void replace_entities(std::string& text) {
  if (text.find('&') == std::string::npos) return;
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
}

bool is_always_apart(char32_t c) {
  return (c >= U' ' && c <= U'&') || (c >= U'(' && c <= U'+') || c == U'/' ||
         (c >= U':' && c <= U'@') || (c >= U'[' && c <= U'`') || (c >= U'{' && c <= U'~');
}

Symbols set_points_apart(const Symbols& text) {
  Symbols symbols = rewrite_pairs(
      text, [](char32_t a, char32_t b) { return !is_digit(a) && is_point(b); }, emit_second_apart);
  symbols = rewrite_pairs(
      symbols, [](char32_t a, char32_t b) { return is_point(a) && !is_digit(b); },
      emit_first_apart);
  return rewrite_pairs(
      symbols, [](char32_t a, char32_t b) { return is_digit(a) && b == U'-'; }, emit_second_apart);
}

Symbols split_western(const Symbols& text) {
  return set_points_apart(set_apart(text, is_always_apart));
}

}  // namespace tapestry::scores
