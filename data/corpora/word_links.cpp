#include "data/corpora/word_links.h"

#include <charconv>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "data/tokenizers/words/placed_text.h"

namespace tapestry {
namespace {

// A link "i-j"; false if the text is none.
bool parse_link(std::string_view text, WordLink& link) {
  const char* const end = text.data() + text.size();
  const auto [middle, of_source] = std::from_chars(text.data(), end, link.source);
  if (of_source != std::errc() || middle == end) return false;
  const char mark = *middle;
  if (mark != '-' && mark != '?' && mark != 'p') return false;
  const auto [rest, of_target] = std::from_chars(middle + 1, end, link.target);
  link.sure = mark == '-';
  return of_target == std::errc() && rest == end && link.source >= 0 && link.target >= 0;
}

}  // namespace

std::vector<WordLink> parse_word_links(std::string_view line, std::string_view source,
                                       std::string_view target, const std::string& place) {
  const auto sources = std::ssize(word_places(source)), targets = std::ssize(word_places(target));
  std::vector<WordLink> links;
  for (const auto& [begin, end] : word_places(line)) {
    const std::string_view text = line.substr(begin, end - begin);
    WordLink link;
    if (!parse_link(text, link)) {
      fail(ErrorKind::kData, "[alignment] ", place,
           " must have pairs i-j of words (i?j: possible ones), counted from 0, got '", text, "'.");
    }
    if (link.source >= sources || link.target >= targets) {
      fail(ErrorKind::kData, "[alignment] ", place, " has the link ", text, " of words from 0 in ",
           sources, " source and ", targets, " target words.");
    }
    links.push_back(link);
  }
  return links;
}

std::vector<int32_t> token_links(const std::vector<WordLink>& links,
                                 const std::vector<int32_t>& source_words,
                                 const std::vector<int32_t>& target_words) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (const WordLink& link : links) {
    for (size_t s = 0; s < source_words.size(); ++s) {
      if (source_words[s] != link.source) continue;
      for (size_t t = 0; t < target_words.size(); ++t) {
        if (target_words[t] != link.target) continue;
        pairs.emplace(static_cast<int32_t>(s), static_cast<int32_t>(t));
      }
    }
  }
  std::vector<int32_t> flat;
  flat.reserve(2 * pairs.size());
  for (const auto& [s, t] : pairs) flat.insert(flat.end(), {s, t});
  return flat;
}

std::vector<int32_t> words_of_tokens(const Tokenizer& tokenizer, const std::string& text) {
  return word_numbers(tokenizer, placed_source(tokenizer, text));
}

}  // namespace tapestry
