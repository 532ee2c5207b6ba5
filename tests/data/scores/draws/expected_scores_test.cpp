// Utilities of draws against their definitions: all pairs, and counts of n-grams in maps.
#include "data/scores/draws/expected_scores.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "data/scores/bleu.h"
#include "data/scores/chrf.h"

namespace tapestry {
namespace {

const DrawnTexts kDrawn = {{"ein Hund läuft.", "ein Hund rennt schnell.", "der Hund läuft .",
                            "zwei Katzen", "", "ein ein ein Hund"},
                           {3, 2, 1, 1, 1, 2}};
constexpr double kDraws = 10;

TEST(ExpectedScoresTest, PairsAreTheMeanOfAllPairs) {
  const Chrf chrf;
  const Bleu bleu({.smooth = "add-k"});
  for (const Metric* metric :
       {static_cast<const Metric*>(&chrf), static_cast<const Metric*>(&bleu)}) {
    const std::vector<double> found = mean_scores(*metric, kDrawn);
    for (size_t h = 0; h < kDrawn.texts.size(); ++h) {
      double sum = 0;
      for (size_t r = 0; r < kDrawn.texts.size(); ++r) {
        std::vector<double> numbers(metric->width());
        const std::string_view text = kDrawn.texts[h];
        metric->measure({&text, 1}, {&kDrawn.texts[r], 1}, numbers.data());
        for (int64_t k = 0; k < kDrawn.times[r]; ++k) sum += metric->score(numbers.data());
      }
      EXPECT_NEAR(found[h], sum / kDraws, 1e-9) << metric->name() << ", " << kDrawn.texts[h];
    }
  }
}

// n-grams of order n, with their numbers.
using Counts = std::map<std::vector<std::string>, double>;
Counts ngrams(const std::vector<std::string>& symbols, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= symbols.size(); ++i) {
    ++counts[{symbols.begin() + static_cast<std::ptrdiff_t>(i),
              symbols.begin() + static_cast<std::ptrdiff_t>(i + n)}];
  }
  return counts;
}
double total(const Counts& counts) {
  double sum = 0;
  for (const auto& [ngram, count] : counts) sum += count;
  return sum;
}

// Matches of a text with the mean of all draws.
struct Matches {
  double given, available, matched;
};
Matches matches(const std::vector<std::vector<std::string>>& texts, size_t text, size_t n) {
  Counts mean;
  for (size_t t = 0; t < texts.size(); ++t) {
    for (const auto& [ngram, count] : ngrams(texts[t], n)) {
      mean[ngram] += count * static_cast<double>(kDrawn.times[t]) / kDraws;
    }
  }
  const Counts own = ngrams(texts[text], n);
  double matched = 0;
  for (const auto& [ngram, count] : own) matched += std::min(count, mean[ngram]);
  return {total(own), total(mean), matched};
}

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> symbols;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = (text[i] & 0x80) != 0 ? 2 : 1;  // only such characters come
    if (text[i] != ' ') symbols.push_back(text.substr(i, bytes));
    i += bytes;
  }
  return symbols;
}

TEST(ExpectedScoresTest, ChrfIsThatOfTheMeanCounts) {
  std::vector<std::vector<std::string>> texts;
  for (const std::string& text : kDrawn.texts) texts.push_back(characters_of(text));
  const std::vector<double> found = expected_chrf(kDrawn);
  for (size_t t = 0; t < texts.size(); ++t) {
    double precision = 0, recall = 0, orders = 0;
    for (size_t n = 1; n <= 6; ++n) {
      const Matches m = matches(texts, t, n);
      if (m.given == 0 || m.available == 0) continue;
      precision += m.matched / m.given, recall += m.matched / m.available, ++orders;
    }
    const double p = orders > 0 ? precision / orders : 0, r = orders > 0 ? recall / orders : 0;
    const double score = p + r > 0 ? 100 * 5 * p * r / (4 * p + r) : 0;
    EXPECT_NEAR(found[t], score, 1e-9) << kDrawn.texts[t];
  }
  EXPECT_EQ(std::ranges::max_element(found) - found.begin(), 0) << "the one drawn most often";
}

TEST(ExpectedScoresTest, BleuIsThatOfTheMeanCounts) {
  const std::vector<std::vector<std::string>> texts = {{"ein", "Hund", "läuft", "."},
                                                       {"ein", "Hund", "rennt", "schnell", "."},
                                                       {"der", "Hund", "läuft", "."},
                                                       {"zwei", "Katzen"},
                                                       {},
                                                       {"ein", "ein", "ein", "Hund"}};
  const std::vector<double> found = expected_bleu(kDrawn);
  for (size_t t = 0; t < texts.size(); ++t) {
    double logarithms = 0;
    for (size_t n = 1; n <= 4; ++n) {
      const Matches m = matches(texts, t, n);
      const double added = n > 1 ? 1 : 0;
      logarithms += std::log((m.matched + added) / (m.given + added)) / 4;
    }
    const Matches words = matches(texts, t, 1);
    const double brevity = std::min(0.0, 1 - words.available / words.given);
    const double score = words.matched > 0 ? 100 * std::exp(logarithms + brevity) : 0;
    EXPECT_NEAR(found[t], score, 1e-9) << kDrawn.texts[t];
  }
}

TEST(ExpectedScoresTest, OneTextIsComparedWithItself) {
  const DrawnTexts one = {{"ein Hund läuft schnell ."}, {7}};
  EXPECT_NEAR(expected_chrf(one)[0], 100, 1e-9);
  EXPECT_NEAR(expected_bleu(one)[0], 100, 1e-9);
}

}  // namespace
}  // namespace tapestry
