#include "data/scores/ngrams.h"

#include <bit>
#include <cstdio>

#include "core/base/error.h"
#include "core/build_info.h"
#include "data/files/utf8.h"

namespace tapestry::scores {

Words split_words(std::u32string_view text) {
  Words words;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    while (i < text.size() && !is_space(text[i])) ++i;
    if (i > begin) {
      words.push_back(text.substr(begin, i - begin));
    } else {
      ++i;
    }
  }
  return words;
}

Symbols symbols_of(std::string_view text, bool lowercase) {
  return lowercase ? decode_utf8(lower_case(text)) : decode_utf8(text);
}

Symbols WordIds::number(const Words& words) {
  Symbols ids;
  ids.reserve(words.size());
  for (const std::u32string_view word : words) {
    ids.push_back(ids_.emplace(word, static_cast<char32_t>(ids_.size())).first->second);
  }
  return ids;
}

NgramIds::NgramIds(size_t symbols, int orders) : orders_(orders) {
  const size_t most = symbols * static_cast<size_t>(orders) + 1;
  const int bits = std::bit_width(2 * most);  // half of the slots stay free
  shift_ = 64 - bits;
  slots_.resize(size_t{1} << bits);
}

uint32_t NgramIds::number(uint32_t prefix, char32_t symbol) {
  const uint64_t key = (uint64_t{prefix} << 32 | symbol) + 1;
  size_t place = key * 0x9E3779B97F4A7C15u >> shift_;
  while (slots_[place].key != 0 && slots_[place].key != key) {
    place = (place + 1) & (slots_.size() - 1);
  }
  Slot& slot = slots_[place];
  if (slot.key == 0) slot = {key, next_++};
  return slot.id;
}

std::vector<uint32_t> NgramIds::list(const Symbols& symbols) {
  std::vector<uint32_t> ids;
  size_t all = 0;
  for (int order = 1; order <= orders_; ++order) all += ngrams_in(symbols.size(), order);
  ids.reserve(all);
  size_t prefixes = 0;  // beginning of the order below
  for (int order = 1; order <= orders_; ++order) {
    const size_t begin = ids.size();
    const size_t count = ngrams_in(symbols.size(), order);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t prefix = order == 1 ? 0 : ids[prefixes + i];
      ids.push_back(number(prefix, symbols[i + static_cast<size_t>(order) - 1]));
    }
    prefixes = begin;
  }
  return ids;
}

std::string version() { return concat("tapestry-", build_info().version); }

std::string fixed(double value, int digits) {
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, value);
  return buffer;
}

}  // namespace tapestry::scores
