#include "apps/tasks/answers/answered_text.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tapestry {

void widen_for_distinct_texts(SearchOptions& options) {
  if (options.n_best == 1 || options.early_stopping == EarlyStopping::kNever) return;
  options.n_best = std::max(options.n_best, options.num_beams);
}

std::vector<Hypothesis> best_texts(std::vector<Hypothesis> found, int64_t n,
                                   const std::function<std::string(const Hypothesis&)>& text_of) {
  if (std::ssize(found) <= n) return found;
  std::set<std::string> texts;
  std::vector<bool> kept;
  for (const Hypothesis& hypothesis : found) {
    const bool full = std::ssize(texts) == n;
    kept.push_back(!full && texts.insert(text_of(hypothesis)).second);
  }
  int64_t missing = n - std::ssize(texts);
  std::vector<Hypothesis> best;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!kept[i] && missing-- <= 0) continue;
    best.push_back(std::move(found[i]));
  }
  return best;
}

std::string translated_text(const Tokenizer& tokenizer, const Hypothesis& hypothesis) {
  std::string text = tokenizer.decode(hypothesis.tokens);
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace tapestry
