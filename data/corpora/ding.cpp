#include "data/corpora/ding.h"

#include <algorithm>

namespace tapestry {
namespace {

// Copies text outside brackets; each bracket leaves a space. False if brackets do not balance.
bool remove_brackets(std::string_view text, std::string& out) {
  constexpr std::string_view kOpen = "{[(<";
  constexpr std::string_view kClose = "}])>";
  std::string expected;
  for (const char c : text) {
    if (const size_t kind = kOpen.find(c); kind != std::string_view::npos) {
      expected.push_back(kClose[kind]);
    } else if (!expected.empty() && c == expected.back()) {
      expected.pop_back();
      out.push_back(' ');
    } else if (expected.empty()) {
      out.push_back(c);
    }
  }
  return expected.empty();
}

// An abbreviation is a separate word /.../; "sb./sth." and "and / or" are text.
size_t end_of_abbreviation(std::string_view text, size_t begin) {
  const bool alone = begin == 0 || text[begin - 1] == ' ';
  if (text[begin] != '/' || !alone) return std::string_view::npos;
  const size_t end = text.find_first_of("/|;", begin + 1);
  if (end == std::string_view::npos || text[end] != '/') return std::string_view::npos;
  if (text[begin + 1] == ' ' || text[end - 1] == ' ') return std::string_view::npos;
  const bool closed = end + 1 == text.size() ||
                      std::string_view(" ;,|").find(text[end + 1]) != std::string_view::npos;
  return closed ? end + 1 : std::string_view::npos;
}

std::string remove_abbreviations(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = end_of_abbreviation(text, i);
    if (end == std::string_view::npos) {
      out.push_back(text[i++]);
    } else {
      i = end;
    }
  }
  return out;
}

std::string first_synonym(std::string_view part) {
  std::string out;
  for (const char c : part.substr(0, part.find(';'))) {
    if (c != ' ') {
      out.push_back(c);
    } else if (!out.empty() && out.back() != ' ') {
      out.push_back(' ');
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

bool parse_side(std::string_view side, std::vector<std::string>& parts) {
  std::string open;
  if (!remove_brackets(side, open)) return false;
  const std::string text = remove_abbreviations(open);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t bar = std::min(text.find('|', begin), text.size());
    parts.push_back(first_synonym(std::string_view(text).substr(begin, bar - begin)));
    begin = bar + 1;
  }
  return true;
}

}  // namespace

bool parse_ding_line(std::string_view line, std::vector<std::pair<std::string, std::string>>& pairs,
                     Drop& reason) {
  constexpr std::string_view kSeparator = " :: ";
  const size_t separator = line.find(kSeparator);
  reason = Drop::kMalformed;
  if (separator == std::string_view::npos) return false;
  const std::string_view english_side = line.substr(separator + kSeparator.size());
  if (english_side.find(kSeparator) != std::string_view::npos) return false;
  std::vector<std::string> german, english;
  if (!parse_side(line.substr(0, separator), german)) return false;
  if (!parse_side(english_side, english)) return false;
  reason = Drop::kUnaligned;
  if (german.size() != english.size()) return false;
  for (size_t i = 0; i < german.size(); ++i) {
    pairs.emplace_back(std::move(german[i]), std::move(english[i]));
  }
  return true;
}

}  // namespace tapestry
