#include "data/lexicon/terms.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/text.h"
#include "data/files/utf8.h"
#include "data/tokenizers/parts/text_regex.h"

namespace tapestry {
namespace {

// True if a word goes on over this place.
bool is_inside_word(std::string_view text, size_t place) {
  if (place == 0 || place >= text.size()) return false;
  size_t before = place - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  return is_word_character(next_code_point(text, before)) &&
         is_word_character(next_code_point(text, place));
}

// The text with its first letter in lower case.
std::string with_lower_first(std::string_view text) {
  size_t end = 0;
  next_code_point(text, end);
  return lower_case(text.substr(0, end)) + std::string(text.substr(end));
}

// What each kind finds.
std::string pattern_of(std::string_view kind) {
  if (kind == "urls") return R"((?:(?:https?|ftp)://|www\.)[^\s<>"']*[^\s<>"'.,;:!?()\[\]{}])";
  if (kind == "emails") return R"([\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+)";
  // With what stands between digits: 1,234.5 and 12:30 and 2026-11-28.
  if (kind == "numbers")
    return R"((?<![\p{L}\p{N}_])(?<!\p{N}[.,:/-])\d+(?:[.,:/-]\d+)*(?![\p{L}\p{N}_]))";
  // {name}, {{name}}, ${name}, %s, %1$d, %-5.2f
  if (kind == "placeholders") {
    return R"(\{\{[^{}]+\}\}|\$?\{[^{}\s]*\}|(?<!\d)%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?)"
           R"((?:hh?|ll?|[zjt])?[diouxXeEfgGcsp@](?![\p{L}\p{N}_]))";
  }
  if (kind.size() > 2 && kind.front() == '/' && kind.back() == '/') {
    return std::string(kind.substr(1, kind.size() - 2));
  }
  fail(ErrorKind::kConfig, "[keep] expected one of ", join(KeptTexts::kKinds, ", "),
       " or a regular expression between slashes, got '", kind, "'.");
}

}  // namespace

Terms::Terms(const std::string& path) {
  LineReader lines(path);
  for (std::string line; lines.next(line);) {
    const size_t tab = line.find('\t');
    const bool well_formed = find_invalid_utf8(line) == std::string_view::npos;
    if (!well_formed || tab == std::string::npos) {
      constexpr size_t kShown = 100;
      fail(ErrorKind::kData, "[terms] ", lines.place(),
           ": expected a source text, a tab and its translation",
           well_formed ? concat(", got '", line.substr(0, kShown), "'.") : " in UTF-8.");
    }
    add({line.substr(0, tab), line.substr(tab + 1), lines.place()});
  }
}

void Terms::add(Entry entry) {
  const auto check = [&](const std::string& text, const char* what) {
    if (!is_blank(text) && text.find('\t') == std::string::npos) return;
    fail(ErrorKind::kData, "[terms] ", entry.place, ": expected ", what, " without tabs, got '",
         text, "'.");
  };
  entry.source = strip(entry.source);
  entry.target = strip(entry.target);
  check(entry.source, "a source text");
  check(entry.target, "a translation");
  const auto [place, is_new] = by_source_.emplace(entry.source, entries_.size());
  if (!is_new) {
    fail(ErrorKind::kData, "[terms] ", entry.place, ": '", entry.source, "' stands in ",
         entries_[place->second].place, ", too.");
  }
  sizes_.insert(entry.source.size());
  entries_.push_back(std::move(entry));
}

const Terms::Entry* Terms::longest_at(std::string_view line, size_t begin, size_t& end) const {
  for (const size_t size : sizes_) {
    if (begin + size > line.size()) continue;
    const std::string_view text = line.substr(begin, size);
    auto found = by_source_.find(text);
    if (found == by_source_.end()) found = by_source_.find(with_lower_first(text));
    if (found == by_source_.end() || is_inside_word(line, begin + size)) continue;
    end = begin + size;
    return &entries_[found->second];
  }
  return nullptr;
}

std::vector<RequiredText> Terms::find(std::string_view line) const {
  std::vector<RequiredText> found;
  for (size_t at = 0; at < line.size();) {
    size_t end = 0;
    const Entry* entry = is_inside_word(line, at) ? nullptr : longest_at(line, at, end);
    if (entry != nullptr) {
      found.push_back({at, end, entry->target});
      at = end;
    } else {
      next_code_point(line, at);
    }
  }
  return found;
}

struct KeptTexts::Patterns {
  std::vector<tokenizers::TextRegex> list;
};

KeptTexts::KeptTexts() : patterns_(std::make_unique<Patterns>()) {}
KeptTexts::KeptTexts(KeptTexts&&) noexcept = default;
KeptTexts& KeptTexts::operator=(KeptTexts&&) noexcept = default;
KeptTexts::~KeptTexts() = default;

KeptTexts::KeptTexts(const std::vector<std::string>& kinds) {
  auto patterns = std::make_unique<Patterns>();
  for (const std::string& kind : kinds) {
    const std::string pattern = pattern_of(kind);
    try {
      patterns->list.emplace_back(pattern, kind);
    } catch (const Error& error) {
      fail(ErrorKind::kConfig, "[keep] expected a regular expression: ", error.what());
    }
  }
  patterns_ = std::move(patterns);
}

std::vector<RequiredText> KeptTexts::find(std::string_view line) const {
  std::vector<RequiredText> found;
  for (const tokenizers::TextRegex& pattern : patterns_->list) {
    std::vector<tokenizers::ByteRange> places;
    pattern.find_all(line, places);
    for (const auto& [begin, end] : places) {
      const std::string_view text = line.substr(begin, end - begin);
      if (!is_blank(text)) found.push_back({begin, end, std::string(text)});
    }
  }
  return found;
}

std::vector<RequiredText> without_overlaps(std::vector<RequiredText> texts) {
  const auto size = [](const RequiredText& text) { return text.end - text.begin; };
  std::ranges::stable_sort(texts, std::greater(), size);
  std::vector<RequiredText> kept;
  for (RequiredText& text : texts) {
    const bool overlaps = std::ranges::any_of(kept, [&](const RequiredText& other) {
      return text.begin < other.end && other.begin < text.end;
    });
    if (!overlaps) kept.push_back(std::move(text));
  }
  std::ranges::sort(kept, {}, &RequiredText::begin);
  return kept;
}

std::string annotated(std::string_view line, const std::vector<RequiredText>& terms) {
  std::string text;
  size_t at = 0;
  for (const RequiredText& term : terms) {
    text += concat(line.substr(at, term.begin - at), kTermMarks[0], " ",
                   line.substr(term.begin, term.end - term.begin), " ", kTermMarks[1], " ",
                   term.text, " ", kTermMarks[2]);
    at = term.end;
  }
  return text + std::string(line.substr(at));
}

}  // namespace tapestry
