#include "apps/tasks/answers/unknown_words.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace tapestry {
namespace {

// Units [begin, end) of the source.
using UnitRange = std::pair<size_t, size_t>;

// The words with unknown tokens, in their order.
std::vector<UnitRange> unknown_words(const PartToAlign& part, int32_t unknown) {
  const std::vector<TextUnit>& units = part.source->units;
  const auto words = word_places(part.placed->text);
  std::map<size_t, UnitRange> found;  // by the word
  for (const PlacedToken& token : part.placed->tokens) {
    const auto begin = static_cast<size_t>(token.begin), end = static_cast<size_t>(token.end);
    if (token.id != unknown || begin == end) continue;
    for (size_t w = 0; w < words.size(); ++w) {
      if (words[w].second <= begin || words[w].first >= end) continue;
      size_t first = unit_at(units, part.begin + words[w].first), last = first;
      while (last < units.size() && units[last].begin < part.begin + words[w].second) ++last;
      const auto is_known_sign = [&](const TextUnit& unit) {
        return !unit.is_word && (unit.end <= part.begin + begin || unit.begin >= part.begin + end);
      };
      while (first < last && is_known_sign(units[first])) ++first;
      while (first < last && is_known_sign(units[last - 1])) --last;
      if (first == last) continue;
      const auto [at, fresh] = found.try_emplace(w, first, last);
      if (fresh) continue;
      at->second = {std::min(at->second.first, first), std::max(at->second.second, last)};
    }
  }
  std::vector<UnitRange> ranges;
  for (const auto& [word, range] : found) ranges.push_back(range);
  return ranges;
}

// The unit that is aligned with the word, the one that gives it most attention; -1 for none.
int32_t unit_of(const UnitRange& word, const UnitAttention& attention,
                const AlignedText& translation) {
  int32_t best = -1;
  double most = 0;
  for (const auto& [source, target] : translation.pairs) {
    const auto unit = static_cast<size_t>(source);
    if (unit < word.first || unit >= word.second) continue;
    double given = 0;
    for (size_t s = word.first; s < word.second; ++s) {
      given += attention.at(static_cast<size_t>(target), s - attention.first);
    }
    if (best < 0 || given > most) best = target, most = given;
  }
  return best;
}

// The unit before which a word stands that none is aligned with.
int32_t gap_for(const UnitRange& word, const AlignedText& translation) {
  AlignedText::Pair next{static_cast<int32_t>(translation.units.size()) - 1, 0};
  bool any = false;
  for (const AlignedText::Pair& pair : translation.pairs) {
    if (pair.first < static_cast<int32_t>(word.second) || (any && pair >= next)) continue;
    next = pair;
    any = true;
  }
  return any ? next.second : static_cast<int32_t>(translation.units.size());
}

// Edits of a translation, by its units as they were.
struct Edits {
  std::map<int32_t, std::string> instead;                                    // of units
  std::map<int32_t, std::vector<std::pair<UnitRange, std::string>>> before;  // units, or the end
};

class Edited {
 public:
  Edited(const AlignedText& old, const Edits& edits) : old_(old), edits_(edits) {}

  AlignedText text() {
    const auto units = static_cast<int32_t>(old_.units.size());
    size_t at = 0;
    for (int32_t i = 0; i <= units; ++i) {
      const TextUnit end{old_.text.size(), old_.text.size()};
      const TextUnit unit = i < units ? old_.units[static_cast<size_t>(i)] : end;
      const auto found = edits_.before.find(i);
      if (i == units) insert(found, /*at_end=*/true);
      new_.text += old_.text.substr(at, unit.begin - at);
      if (i == units) break;
      insert(found, /*at_end=*/false);
      const auto instead = edits_.instead.find(i);
      numbers_.push_back(static_cast<int32_t>(new_.units.size()));
      add_unit(instead == edits_.instead.end() ? old_.text.substr(unit.begin, unit.end - unit.begin)
                                               : instead->second,
               unit.is_word);
      at = unit.end;
    }
    for (const auto& [source, target] : old_.pairs) {
      new_.pairs.emplace_back(source, numbers_[static_cast<size_t>(target)]);
    }
    for (const auto& [source, target] : old_.guesses) {
      new_.guesses.emplace_back(source, numbers_[static_cast<size_t>(target)]);
    }
    return std::move(new_);
  }

 private:
  using Found = decltype(Edits::before)::const_iterator;

  void add_unit(const std::string& text, bool is_word) {
    new_.units.push_back({new_.text.size(), new_.text.size() + text.size(), is_word});
    new_.text += text;
  }

  void insert(Found found, bool at_end) {
    if (found == edits_.before.end()) return;
    for (const auto& [word, text] : found->second) {
      if (at_end && !new_.text.empty()) new_.text += ' ';
      for (size_t unit = word.first; unit < word.second; ++unit) {
        new_.pairs.emplace_back(static_cast<int32_t>(unit),
                                static_cast<int32_t>(new_.units.size()));
      }
      add_unit(text, true);
      if (!at_end) new_.text += ' ';
    }
  }

  const AlignedText& old_;
  const Edits& edits_;
  std::vector<int32_t> numbers_;  // of the old units
  AlignedText new_;
};

}  // namespace

void copy_unknown_words(const PartToAlign& part, const UnitAttention& attention, int32_t unknown,
                        AlignedText& translation) {
  Edits edits;
  for (const UnitRange& word : unknown_words(part, unknown)) {
    const std::vector<TextUnit>& units = part.source->units;
    const size_t begin = units[word.first].begin;
    std::string text = part.source->text.substr(begin, units[word.second - 1].end - begin);
    const int32_t unit = unit_of(word, attention, translation);
    if (unit >= 0) {
      edits.instead[unit] = std::move(text);
    } else {
      edits.before[gap_for(word, translation)].emplace_back(word, std::move(text));
    }
  }
  if (!edits.instead.empty() || !edits.before.empty()) {
    translation = Edited(translation, edits).text();
  }
}

bool has_unknown_tokens(const Tokenizer& tokenizer) {
  if (!tokenizer.special().unk) return false;
  // Characters of scripts that hardly any vocabulary has, and one of private use.
  for (const char* const text : {"\xF0\x93\x80\x80", "\xF0\x96\xBC\x80", "\xEE\xA0\xBA"}) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    if (std::ranges::find(ids, *tokenizer.special().unk) != ids.end()) return true;
  }
  return false;
}

}  // namespace tapestry
