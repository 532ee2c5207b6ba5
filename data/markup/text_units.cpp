#include "data/markup/text_units.h"

#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include <algorithm>
#include <memory>

#include "core/base/error.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

std::unique_ptr<icu::BreakIterator> new_word_breaks() {
  UErrorCode status = U_ZERO_ERROR;
  std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createWordInstance(icu::Locale::getRoot(), status));
  check(U_SUCCESS(status), "units", "ICU cannot find words: ", u_errorName(status), '.');
  return breaks;
}

bool is_white(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (!is_space(next_code_point(text, at))) return false;
  }
  return true;
}

}  // namespace

std::vector<TextUnit> text_units(std::string_view text) {
  static thread_local const std::unique_ptr<icu::BreakIterator> breaks = new_word_breaks();
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UText, decltype(&utext_close)> read(
      utext_openUTF8(nullptr, text.data(), std::ssize(text), &status), &utext_close);
  breaks->setText(read.get(), status);
  check(U_SUCCESS(status), "units", "ICU cannot read a text: ", u_errorName(status), '.');
  std::vector<TextUnit> units;
  int32_t begin = breaks->first();
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) {
    const TextUnit unit{static_cast<size_t>(begin), static_cast<size_t>(end),
                        breaks->getRuleStatus() >= UBRK_WORD_NONE_LIMIT};
    if (!is_white(text.substr(unit.begin, unit.end - unit.begin))) units.push_back(unit);
    begin = end;
  }
  return units;
}

size_t unit_at(const std::vector<TextUnit>& units, size_t at) {
  const auto found = std::ranges::upper_bound(units, at, {}, &TextUnit::end);
  return static_cast<size_t>(found - units.begin());
}

}  // namespace tapestry
