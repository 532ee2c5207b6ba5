#include "apps/tasks/validation_details.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>

#include "core/base/error.h"

namespace tapestry {
namespace {

// A score of fewer sentences means little.
constexpr size_t kFewestOfALength = 20;
// Largest number of words in each group of sentences; longer sentences are one group.
constexpr int64_t kLengths[] = {5, 10, 15, 20, 25, 30, 40, 50, 75, 100};

int64_t words_of(const std::string& text) {
  std::istringstream in(text);
  int64_t words = 0;
  for (std::string word; in >> word;) ++words;
  return words;
}

}  // namespace

std::vector<int64_t> shown_examples(int64_t wanted, int64_t examples) {
  const int64_t count = std::min(wanted, examples);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(i * examples / count);
  return numbers;
}

void show_samples(ValidationDetails* details, const std::function<std::vector<Sample>()>& make) {
  if (details == nullptr || details->wanted == 0) return;
  try {
    details->samples = make();
  } catch (const std::exception& error) {
    details->problem = error.what();
  }
}

std::vector<LengthScore> scores_by_length(
    const std::vector<std::string>& references,
    const std::function<double(const std::vector<size_t>& sentences)>& score) {
  struct Group {
    int64_t from = 0, to = 0;
    std::vector<size_t> sentences;
  };
  std::map<int64_t, Group> of_length;  // by the last length of each
  for (size_t i = 0; i < references.size(); ++i) {
    const int64_t words = words_of(references[i]);
    const auto* const end = std::ranges::lower_bound(kLengths, words);
    const int64_t last = end == std::end(kLengths) ? std::numeric_limits<int64_t>::max() : *end;
    Group& group = of_length[last];
    group.from = group.sentences.empty() ? words : std::min(group.from, words);
    group.to = std::max(group.to, words);
    group.sentences.push_back(i);
  }
  std::vector<Group> groups;
  for (auto& [last, group] : of_length) {
    const bool few = !groups.empty() && (group.sentences.size() < kFewestOfALength ||
                                         groups.back().sentences.size() < kFewestOfALength);
    if (!few) {
      groups.push_back(std::move(group));
      continue;
    }
    Group& before = groups.back();
    before.to = group.to;
    before.sentences.insert(before.sentences.end(), group.sentences.begin(), group.sentences.end());
  }
  std::vector<LengthScore> scores;
  for (const Group& group : groups) {
    scores.push_back({group.from, group.to, std::ssize(group.sentences), score(group.sentences)});
  }
  return scores;
}

std::vector<std::pair<std::string, double>> best_guesses(const std::vector<std::string>& classes,
                                                         const std::vector<double>& probabilities) {
  constexpr size_t kGuesses = 3;
  for (const double probability : probabilities) {
    check(std::isfinite(probability), "samples", "expected probabilities, got ", probability, '.');
  }
  std::vector<size_t> order(classes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return probabilities.at(a) > probabilities.at(b); });
  order.resize(std::min(order.size(), kGuesses));
  std::vector<std::pair<std::string, double>> guesses;
  for (const size_t i : order) guesses.emplace_back(classes[i], probabilities[i]);
  return guesses;
}

}  // namespace tapestry
