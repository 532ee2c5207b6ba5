#include "data/corpora/text_changes.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/stringpiece.h>
#include <unicode/ucasemap.h>

#include <algorithm>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

// `map` writes the text to a sink.
template <class Map>
std::string mapped(Map&& map) {
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  UErrorCode status = U_ZERO_ERROR;
  map(sink, status);
  check(U_SUCCESS(status), "text", "ICU cannot change the case: ", u_errorName(status), '.');
  return result;
}

std::string upper_case(const std::string& text) {
  return mapped([&](icu::ByteSink& sink, UErrorCode& status) {
    icu::CaseMap::utf8ToUpper("", 0, text, sink, nullptr, status);
  });
}

std::string title_case(const std::string& text) {
  return mapped([&](icu::ByteSink& sink, UErrorCode& status) {
    icu::CaseMap::utf8ToTitle("", U_TITLECASE_NO_LOWERCASE, nullptr, text, sink, nullptr, status);
  });
}

void drop_end_marks(std::string& text) {
  constexpr std::u32string_view kMarks = U".!?\u2026\u3002\uFF01\uFF1F\u061F\u0964";
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    if (!is_space(point) && kMarks.find(point) == std::u32string_view::npos) end = at;
  }
  if (end > 0) text.resize(end);
}

// A slip in a word of at least four letters; the first stays.
void slip(std::u32string& word, RowDraws& draws) {
  const auto at = static_cast<size_t>(1 + draws.below(std::ssize(word) - 2));
  switch (draws.below(4)) {
    case 0:
      std::swap(word[at], word[at + 1]);
      return;
    case 1:
      word.erase(at, 1);
      return;
    case 2:
      word.insert(at, 1, word[at]);
      return;
    default:
      word[at] = word[static_cast<size_t>(draws.below(std::ssize(word)))];
  }
}

std::string with_typos(const std::string& text, RowDraws& draws) {
  constexpr size_t kShortest = 4;  // letters of a word that has slips
  constexpr double kShare = 0.15;  // of these words
  std::string result;
  std::u32string word;
  const auto flush = [&] {
    if (word.size() >= kShortest && draws.uniform() < kShare) slip(word, draws);
    for (const char32_t letter : word) append_utf8(result, letter);
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    if (is_word_character(point)) {
      word += point;
      continue;
    }
    flush();
    append_utf8(result, point);
  }
  flush();
  return result;
}

}  // namespace

DrawnChanges::DrawnChanges(const TextChanges& shares, RowDraws& draws)
    : upper_case(draws.uniform() < shares.upper_case),
      title_case(draws.uniform() < shares.title_case),
      no_end_mark(draws.uniform() < shares.no_end_mark),
      typos(draws.uniform() < shares.typos) {}

std::string changed_text(std::string_view text, const DrawnChanges& changes, bool source,
                         RowDraws& draws) {
  std::string changed(text);
  if (changes.no_end_mark) drop_end_marks(changed);
  if (source && changes.typos) changed = with_typos(changed, draws);
  if (changes.upper_case) return upper_case(changed);
  return changes.title_case ? title_case(changed) : changed;
}

}  // namespace tapestry
