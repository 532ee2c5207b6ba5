#include "data/tokenizers/character_changes.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// The code points of a text, without spaces at its ends and behind others.
std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c == U' ' && (characters.empty() || characters.back() == U' ')) continue;
    characters.push_back(c);
  }
  if (!characters.empty() && characters.back() == U' ') characters.pop_back();
  return characters;
}

// Lengths up to which two texts that differ at their beginnings must be read until they are equal
// again.
struct Gap {
  size_t before, after;
};

Gap gap_of(std::u32string_view before, std::u32string_view after) {
  constexpr size_t kFarthest = 24;
  constexpr size_t kSame = 2;  // equal characters in a row that end a difference
  const auto meet = [&](size_t x, size_t y) {
    if (x > before.size() || y > after.size()) return false;
    const std::u32string_view a = before.substr(x, kSame), b = after.substr(y, kSame);
    return a == b && (!a.empty() || (x == before.size() && y == after.size()));
  };
  for (size_t both = 1; both <= kFarthest; ++both) {
    // Replaced characters are likelier than missing ones, and these likelier than new ones.
    for (size_t more = both % 2; more <= both; more += 2) {
      const size_t low = (both - more) / 2, high = (both + more) / 2;
      if (meet(high, low)) return {high, low};
      if (meet(low, high)) return {low, high};
    }
  }
  return {before.size(), after.size()};
}

std::string shown(const std::u32string& characters) {
  std::string text;
  for (const char32_t c : characters) append_utf8(text, c);
  return concat('\'', text, '\'');
}

}  // namespace

void CharacterChanges::add(std::string_view before, std::string_view after) {
  if (before == after && before.find_first_not_of(' ') != std::string_view::npos) {
    characters_ += std::ssize(characters_of(before));
    return;
  }
  const std::u32string old_text = characters_of(before), new_text = characters_of(after);
  characters_ += std::ssize(old_text);
  std::u32string_view a = old_text, b = new_text;
  while (true) {
    const auto [x, y] = std::ranges::mismatch(a, b);
    a.remove_prefix(static_cast<size_t>(x - a.begin()));
    b.remove_prefix(static_cast<size_t>(y - b.begin()));
    if (a.empty() && b.empty()) return;
    const Gap gap = gap_of(a, b);
    const bool in_pairs = gap.before == gap.after;
    if (in_pairs) {
      for (size_t i = 0; i < gap.before; ++i) {
        if (a[i] != b[i]) note(a.substr(i, 1), b.substr(i, 1));
      }
    } else {
      note(a.substr(0, gap.before), b.substr(0, gap.after));
    }
    a.remove_prefix(gap.before);
    b.remove_prefix(gap.after);
  }
}

void CharacterChanges::note(std::u32string_view before, std::u32string_view after) {
  constexpr size_t kMostKinds = 10000, kLongest = 8;
  changed_ += std::max<int64_t>(1, std::ssize(before));
  if (before.size() > kLongest || after.size() > kLongest) return;
  const Change change{before, after};
  if (counts_.size() >= kMostKinds && !counts_.contains(change)) return;
  ++counts_[change];
}

std::string CharacterChanges::most_frequent() const {
  const auto most = std::ranges::max_element(
      counts_, [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts_.end()) return "";
  return concat(shown(most->first.first), " -> ", shown(most->first.second));
}

}  // namespace tapestry
