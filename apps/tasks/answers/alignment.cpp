#include "apps/tasks/answers/alignment.h"

#include <set>

#include "core/base/error.h"

namespace tapestry {

std::vector<WordScore> word_scores(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                   const std::vector<double>& token_log_probabilities) {
  const PlacedText output = placed_output(tokenizer, ids);
  const std::vector<int32_t> numbers = word_numbers(tokenizer, output);
  std::vector<WordScore> words;
  for (const auto& [begin, end] : word_places(output.text)) {
    words.push_back({output.text.substr(begin, end - begin)});
  }
  double waiting = 0;  // of white space
  for (size_t i = 0; i < ids.size(); ++i) {
    waiting += token_log_probabilities.at(i);
    if (numbers[i] < 0) continue;
    words.at(static_cast<size_t>(numbers[i])).log_probability += waiting;
    waiting = 0;
  }
  if (!words.empty()) words.back().log_probability += waiting;
  return words;
}

Alignment hard_alignment(const Tensor& weights, const std::vector<int32_t>& source_units,
                         const std::vector<int32_t>& target_units) {
  const auto sources = std::ssize(source_units), targets = std::ssize(target_units);
  check(weights.shape() == Shape({targets + 1, sources + 1}), "alignment", "expected weights of ",
        targets, " + 1 and ", sources, " + 1 tokens, got ", weights.shape(), '.');
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (int64_t t = 0; t < targets; ++t) {
    if (target_units[t] < 0) continue;
    const double* const row = weights.data<double>() + t * (sources + 1);
    int64_t best = sources;  // eos
    for (int64_t s = 0; s < sources; ++s) {
      if (source_units[s] >= 0 && row[s] > row[best]) best = s;
    }
    if (best < sources) pairs.emplace(source_units[best], target_units[t]);
  }
  return {pairs.begin(), pairs.end()};
}

std::string pharaoh(const Alignment& alignment) {
  std::string text;
  for (const auto& [source, target] : alignment) {
    text += concat(text.empty() ? "" : " ", source, '-', target);
  }
  return text;
}

}  // namespace tapestry
