#include "data/scores/answer_scores.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "core/base/text.h"
#include "data/files/utf8.h"
#include "data/scores/punctuation.h"

namespace tapestry {
namespace {

bool is_article(const std::string& word) { return word == "a" || word == "an" || word == "the"; }

std::vector<std::string> words_of(const std::string& normalized) {
  std::istringstream in(normalized);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The references that have a word; if none has, a single empty one.
std::vector<std::string> normalized_references(const std::vector<std::string>& references) {
  std::vector<std::string> all;
  for (const std::string& reference : references) {
    std::string text = normalize_answer(reference);
    if (!text.empty()) all.push_back(std::move(text));
  }
  if (all.empty()) all.emplace_back();
  return all;
}

double f1_of(const std::vector<std::string>& answer, const std::vector<std::string>& reference) {
  if (answer.empty() || reference.empty()) return answer == reference ? 1 : 0;
  std::map<std::string, int64_t> left;
  for (const std::string& word : reference) ++left[word];
  int64_t shared = 0;
  for (const std::string& word : answer) shared += left[word]-- > 0 ? 1 : 0;
  return 2.0 * static_cast<double>(shared) / static_cast<double>(answer.size() + reference.size());
}

}  // namespace

// An article is a maximal run of word characters (letters, digits, _), as between \b in Python's
// regular expressions; combining marks and punctuation beyond ASCII end a word.
std::string normalize_answer(std::string_view text) {
  std::string spaced, word;
  const auto end_word = [&] {
    spaced += is_article(word) ? " " : word;
    word.clear();
  };
  const std::string lower = lower_case(text);
  for (size_t at = 0; at < lower.size();) {
    const char32_t c = next_code_point(lower, at);
    if (scores::is_ascii_punctuation(c)) continue;
    if (is_word_character(c)) {
      append_utf8(word, c);
      continue;
    }
    end_word();
    append_utf8(spaced, is_space(c) ? U' ' : c);
  }
  end_word();
  return join(words_of(spaced), " ");
}

double exact_match(std::string_view answer, const std::vector<std::string>& references) {
  const std::vector<std::string> all = normalized_references(references);
  return std::ranges::find(all, normalize_answer(answer)) != all.end() ? 1 : 0;
}

double answer_f1(std::string_view answer, const std::vector<std::string>& references) {
  const std::vector<std::string> words = words_of(normalize_answer(answer));
  double best = 0;
  for (const std::string& reference : normalized_references(references)) {
    best = std::max(best, f1_of(words, words_of(reference)));
  }
  return best;
}

}  // namespace tapestry
