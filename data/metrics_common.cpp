#include "data/metrics_common.h"

#include <algorithm>
#include <cstdio>

#include "core/build_info.h"
#include "core/error.h"
#include "data/utf8.h"

namespace tapestry::metrics {
namespace {

using NgramCounts = std::unordered_map<std::u32string_view, int64_t>;

NgramCounts count_ngrams(std::u32string_view symbols, size_t order) {
  NgramCounts counts;
  for (size_t i = 0; i + order <= symbols.size(); ++i) ++counts[symbols.substr(i, order)];
  return counts;
}

}  // namespace

std::vector<Symbols> split_words(const Symbols& text) {
  std::vector<Symbols> words;
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

Symbols WordIds::number(const std::vector<Symbols>& words) {
  Symbols ids;
  ids.reserve(words.size());
  for (const Symbols& word : words) {
    ids.push_back(ids_.emplace(word, static_cast<char32_t>(ids_.size())).first->second);
  }
  return ids;
}

NgramMatches match_ngrams(const Symbols& hypothesis, const Symbols& reference, int order) {
  const auto size = static_cast<size_t>(order);
  const auto ngrams = [&](const Symbols& symbols) {
    return symbols.size() < size ? 0 : static_cast<int64_t>(symbols.size() - size + 1);
  };
  NgramMatches matches{ngrams(hypothesis), ngrams(reference), 0};
  if (matches.hypothesis == 0 || matches.reference == 0) return matches;
  const NgramCounts available = count_ngrams(reference, size);
  for (const auto& [ngram, count] : count_ngrams(hypothesis, size)) {
    const auto found = available.find(ngram);
    if (found != available.end()) matches.matched += std::min(count, found->second);
  }
  return matches;
}

Symbols symbols_of(std::string_view text, bool lowercase) {
  return lowercase ? decode_utf8(lower_case(text)) : decode_utf8(text);
}

void check_lines(const char* who, size_t hypotheses, size_t references) {
  if (hypotheses != references) {
    fail(ErrorKind::kData, '[', who, "] expected as many hypotheses as references, got ",
         hypotheses, " and ", references, '.');
  }
  if (hypotheses == 0) fail(ErrorKind::kData, '[', who, "] expected lines to compare, got none.");
}

std::string version() { return concat("tapestry-", build_info().version); }

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, value);
  return buffer;
}

}  // namespace tapestry::metrics
