#include "data/markup/tag_syntax.h"

#include <algorithm>

namespace tapestry {
namespace {

constexpr std::string_view kVoid[] = {"area",  "base", "br",   "col",   "embed",  "hr",    "img",
                                      "input", "link", "meta", "param", "source", "track", "wbr"};
constexpr std::string_view kBlocks[] = {
    "address", "article",  "aside",   "blockquote", "body",    "br",       "caption", "dd",
    "details", "div",      "dl",      "dt",         "footer",  "fieldset", "figure",  "figcaption",
    "form",    "h1",       "h2",      "h3",         "h4",      "h5",       "h6",      "head",
    "header",  "hr",       "html",    "li",         "main",    "nav",      "ol",      "option",
    "p",       "pre",      "section", "select",     "summary", "table",    "tbody",   "td",
    "tfoot",   "textarea", "th",      "thead",      "title",   "tr",       "ul"};
constexpr std::string_view kRaw[] = {"script", "style", "code", "kbd", "samp", "var"};

template <class List>
bool has(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool continues_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

std::string lower(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

FoundTag TagFinder::at(size_t at) {
  const std::string_view rest = text_.substr(at);
  if (rest.starts_with("<!--")) return to(at, "-->");
  if (rest.starts_with("<![CDATA[")) return to(at, "]]>");
  if (rest.starts_with("<?")) return to(at, html() ? ">" : "?>");
  if (rest.starts_with("<!")) return begins_name(byte(at + 2)) ? to(at, ">") : FoundTag{};
  if (rest.starts_with("</")) return closing(at);
  return opening(at);
}

// All up to `end`.
FoundTag TagFinder::to(size_t at, std::string_view end) {
  const size_t found = find(end, at + 2);
  if (found == std::string_view::npos) return {};
  return {.kind = TagKind::kLone, .length = found + end.size() - at};
}

FoundTag TagFinder::closing(size_t at) {
  const size_t name = at + 2, name_end = skip_name(name);
  const size_t end = skip_space(name_end);
  if (name_end == name || byte(end) != '>') return {};
  FoundTag tag{.kind = TagKind::kCloses,
               .length = end + 1 - at,
               .name = std::string(text_.substr(name, name_end - name))};
  if (html()) tag.name = lower(tag.name);
  tag.is_block = html() && has(kBlocks, tag.name);
  return tag;
}

FoundTag TagFinder::opening(size_t at) {
  const size_t name = at + 1, name_end = skip_name(name);
  size_t end = name_end;
  if (name_end == name || !skip_attributes(end)) return {};
  const bool lone = byte(end) == '/';
  end += lone ? 2 : 1;
  FoundTag tag{.kind = lone ? TagKind::kLone : TagKind::kOpens,
               .length = end - at,
               .name = std::string(text_.substr(name, name_end - name))};
  if (!html()) return tag;
  tag.name = lower(tag.name);
  tag.is_block = has(kBlocks, tag.name);
  if (has(kVoid, tag.name)) tag.kind = TagKind::kLone;
  if (tag.kind == TagKind::kLone || !has(kRaw, tag.name)) return tag;
  const size_t close = find("</" + tag.name, end);  // in any case
  const size_t last = close == std::string_view::npos ? close : find(">", close);
  if (last == std::string_view::npos) return tag;
  return {.kind = TagKind::kLone, .length = last + 1 - at};
}

// Moves `at` to the end of the tag, > or />. False where there is none.
bool TagFinder::skip_attributes(size_t& at) {
  for (;;) {
    const size_t behind = skip_space(at);
    if (byte(behind) == '>' || (byte(behind) == '/' && byte(behind + 1) == '>')) {
      at = behind;
      return true;
    }
    if (html() && byte(behind) == '/') {  // means nothing
      at = behind + 1;
      continue;
    }
    if (behind == at && !html()) return false;
    at = behind;
    const size_t begin = at;
    while (at < text_.size() && !is_white(text_[at]) &&
           std::string_view("\"'<>/=").find(text_[at]) == std::string_view::npos) {
      ++at;
    }
    if (at == begin) return false;
    const size_t sign = skip_space(at);
    if (byte(sign) == '=') {
      at = skip_space(sign + 1);
      if (!skip_value(at)) return false;
    } else if (!html()) {
      return false;
    }
  }
}

bool TagFinder::skip_value(size_t& at) {
  const char quote = byte(at);
  if (quote == '"' || quote == '\'') {
    const size_t end = find(std::string_view(&quote, 1), at + 1);
    if (end == std::string_view::npos) return false;
    at = end + 1;
    return true;
  }
  const size_t begin = at;
  while (html() && at < text_.size() && !is_white(text_[at]) &&
         std::string_view("\"'<>=").find(text_[at]) == std::string_view::npos) {
    ++at;
  }
  return at > begin;
}

// The next place of a text in lower case, in any case.
size_t TagFinder::find(std::string_view what, size_t from) {
  const std::string key(what);
  if (missing_.contains(key)) return std::string_view::npos;
  const auto same = [](char a, char b) {
    return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b);
  };
  const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(std::min(from, text_.size()));
  const auto found = what.size() == 1
                         ? std::find(begin, text_.end(), what[0])
                         : std::search(begin, text_.end(), what.begin(), what.end(), same);
  if (found != text_.end()) return static_cast<size_t>(found - text_.begin());
  missing_[key] = true;
  return std::string_view::npos;
}

size_t TagFinder::skip_space(size_t at) const {
  while (at < text_.size() && is_white(text_[at])) ++at;
  return at;
}

size_t TagFinder::skip_name(size_t at) const {
  if (!begins_name(byte(at))) return at;
  while (continues_name(byte(at))) ++at;
  return at;
}

}  // namespace tapestry
