#include "data/chat/lexer.h"

#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry::jinja {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";
using TokenKind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool in_name(char c) { return begins_name(c) || is_digit(c); }

// Line ends become \n, and one at the end is dropped, as Jinja does.
std::string normalised(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalised(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      add_text(tag);
      if (tag == std::string::npos) break;
      at_ = tag;
      read_tag();
    }
    at_ = source_.size();
    add(TokenKind::kEnd, "", at_);
    return std::move(tokens_);
  }

 private:
  bool at(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  char peek(size_t ahead) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : 0; }
  void skip_space() { at_ = std::min(source_.find_first_not_of(kSpace, at_), source_.size()); }

  size_t next_tag() const {
    for (size_t i = at_; (i = source_.find('{', i)) != std::string::npos; ++i) {
      const char next = i + 1 < source_.size() ? source_[i + 1] : 0;
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return std::string::npos;
  }

  // The text up to a tag, whose sign may take white space away.
  void add_text(size_t tag) {
    std::string text = source_.substr(at_, tag == std::string::npos ? tag : tag - at_);
    if (tag != std::string::npos) trim_before(text, tag);
    if (!text.empty()) add(TokenKind::kText, std::move(text), at_);
  }
  void trim_before(std::string& text, size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : 0;
    if (sign == '-') {
      size_t end = text.size();
      while (end > 0 && kSpace.find(text[end - 1]) != std::string_view::npos) --end;
      text.resize(end);
      return;
    }
    if (sign == '+' || source_[tag + 1] == '{') return;
    const size_t line = text.rfind('\n') + 1;  // 0 without one
    const bool begins_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    if (begins_line && text.find_first_not_of(kSpace, line) == std::string::npos) text.resize(line);
  }

  void read_tag() {
    const char type = source_[at_ + 1];
    const size_t begin = at_;
    at_ += 2;
    if (peek(0) == '-' || peek(0) == '+') ++at_;
    if (type == '#') return skip_comment(begin);
    if (type == '%' && read_raw(begin)) return;
    const bool is_block = type == '%';
    add(is_block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, is_block ? "{%" : "{{",
        begin);
    const std::string_view end = is_block ? "%}" : "}}";
    std::string open;
    for (skip_space(); !open.empty() || !take_end(end, is_block); skip_space()) {
      if (at_ >= source_.size()) fail_at(begin, concat("'", tokens_.back().text, "'"), end);
      read_token(open);
    }
  }
  [[noreturn]] void fail_at(size_t place, const std::string& after, std::string_view expected) {
    throw PlacedProblem{place_of(place), concat("expected '", std::string(expected), "' after ",
                                                after, ", got the end of the template.")};
  }

  // "-%}" takes white space away, "%}" a line end; "+%}" and "}}" nothing.
  bool take_end(std::string_view end, bool trims_line) {
    const char sign = peek(0);
    const bool has_sign = (sign == '-' || (sign == '+' && trims_line)) &&
                          source_.compare(at_ + 1, end.size(), end) == 0;
    if (!has_sign && !at(end)) return false;
    const size_t begin = at_;
    at_ += end.size() + (has_sign ? 1 : 0);
    if (has_sign && sign == '-') {
      skip_space();
    } else if (!has_sign && trims_line && peek(0) == '\n') {
      ++at_;
    }
    if (end != "#}") {
      add(end == "%}" ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, std::string(end), begin);
    }
    return true;
  }

  void skip_comment(size_t begin) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail_at(begin, "'{#'", "#}");
    const bool has_sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    at_ = end - (has_sign ? 1 : 0);
    take_end("#}", true);
  }

  // {% raw %} ... {% endraw %} is text.
  bool read_raw(size_t begin) {
    const size_t start = at_;
    const auto is_word = [&](std::string_view word) {
      skip_space();
      if (!at(word)) return false;
      at_ += word.size();
      skip_space();
      return at("%}") || at("-%}") || at("+%}");
    };
    if (!is_word("raw")) return at_ = start, false;
    const bool trims = peek(0) == '-';
    at_ += trims ? 3 : peek(0) == '+' ? 3 : 2;
    if (trims) skip_space();
    const size_t text = at_;
    for (size_t tag = at_; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      at_ = tag + 2;
      if (peek(0) == '-' || peek(0) == '+') ++at_;
      if (!is_word("endraw")) continue;
      const size_t end = at_;
      at_ = text;
      add_text(tag);
      at_ = end;
      take_end("%}", true);
      tokens_.pop_back();
      return true;
    }
    fail_at(begin, "'raw'", "endraw");
  }

  void read_token(std::string& open) {
    const char c = source_[at_];
    if (begins_name(c)) return read_while(TokenKind::kName, in_name);
    if (is_digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string(c);
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (at(two)) {
        add(TokenKind::kOperator, std::string(two), at_);
        at_ += 2;
        return;
      }
    }
    if (std::string_view("+-/*%~[](){}=><.:|,;").find(c) == std::string_view::npos) {
      throw PlacedProblem{place_of(at_), concat("'", std::string(1, c), "' has no meaning here.")};
    }
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (const size_t i = kOpening.find(c); i != std::string_view::npos) open += kClosing[i];
    if (kClosing.find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c) {
        const std::string wanted =
            open.empty() ? "nothing to close" : concat("'", open.back(), "'");
        throw PlacedProblem{place_of(at_),
                            concat("expected ", wanted, ", got '", std::string(1, c), "'.")};
      }
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c), at_);
    ++at_;
  }

  template <class Belongs>
  void read_while(TokenKind kind, Belongs belongs) {
    const size_t begin = at_;
    while (at_ < source_.size() && belongs(source_[at_])) ++at_;
    add(kind, source_.substr(begin, at_ - begin), begin);
  }

  void read_number() {
    const size_t begin = at_;
    std::string digits;
    TokenKind kind = TokenKind::kInteger;
    const auto take_digits = [&] {
      for (; is_digit(peek(0)) || (peek(0) == '_' && is_digit(peek(1))); ++at_) {
        if (peek(0) != '_') digits += peek(0);
      }
    };
    take_digits();
    const Token& before = tokens_.back();  // at least the begin of the tag
    const bool after_dot = before.kind == TokenKind::kOperator && before.text == ".";
    if (peek(0) == '.' && is_digit(peek(1)) && !after_dot) {
      kind = TokenKind::kFloat;
      digits += source_[at_++];
      take_digits();
    }
    const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
    if ((peek(0) == 'e' || peek(0) == 'E') && is_digit(peek(1 + sign)) && !after_dot) {
      kind = TokenKind::kFloat;
      digits += source_.substr(at_, 1 + sign);
      at_ += 1 + sign;
      take_digits();
    }
    add(kind, std::move(digits), begin);
  }

  void read_string(char quote) {
    const size_t begin = at_++;
    std::string text;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\') {
        read_escape(text);
      } else {
        text += source_[at_++];
      }
    }
    if (at_ >= source_.size()) fail_at(begin, "a quote", std::string(1, quote));
    ++at_;
    add(TokenKind::kString, std::move(text), begin);
  }

  // As in Python's strings; unknown escapes stay as they are.
  void read_escape(std::string& text) {
    constexpr std::string_view kNames = "ntrabfv\\'\"\n", kMeanings = "\n\t\r\a\b\f\v\\'\"";
    const char name = peek(1);
    const size_t known = kNames.find(name);
    const int digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
    if (name != 0 && known != std::string_view::npos) {
      if (known < kMeanings.size()) text += kMeanings[known];
      at_ += 2;
    } else if (digits > 0 || (name >= '0' && name <= '7')) {
      const size_t first = at_ + (digits > 0 ? 2 : 1);
      const size_t last =
          std::min(first + static_cast<size_t>(digits > 0 ? digits : 3), source_.size());
      uint32_t code = 0;
      const auto end =
          std::from_chars(source_.data() + first, source_.data() + last, code, digits > 0 ? 16 : 8);
      const bool is_whole = digits == 0 || end.ptr == source_.data() + last;
      if (!is_whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        throw PlacedProblem{place_of(at_), "the escape is no character."};
      }
      append_utf8(text, code);
      at_ = static_cast<size_t>(end.ptr - source_.data());
    } else {
      text += source_[at_++];
    }
  }

  void add(TokenKind kind, std::string text, size_t at) {
    tokens_.push_back({kind, std::move(text), place_of(at)});
  }
  // Tokens come in the order of the source, errors go back at most to the tag that is read.
  Place place_of(size_t at) {
    if (at < seen_) seen_ = 0, seen_place_ = {};
    for (; seen_ < at; ++seen_) {
      const bool ends = source_[seen_] == '\n';
      seen_place_ =
          ends ? Place{seen_place_.line + 1, 1} : Place{seen_place_.line, seen_place_.column + 1};
    }
    return seen_place_;
  }

  const std::string source_;
  size_t at_ = 0;
  size_t seen_ = 0;
  Place seen_place_;
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::shown() const {
  switch (kind) {
    case TokenKind::kText:
      return "a text";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return concat("'", text, "'");
  }
}

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace tapestry::jinja
