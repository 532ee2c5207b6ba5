#include "data/scores/draws/expected_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "data/files/utf8.h"
#include "data/scores/bleu.h"
#include "data/scores/chrf.h"
#include "data/scores/ngrams.h"

namespace tapestry {
namespace {

using scores::Symbols;

// Numbers of an order, each of them as often as there are draws, so that they are whole.
struct OrderCounts {
  double given = 0;      // n-grams of the text
  double available = 0;  // of all draws
  double matched = 0;
};

int64_t draws_of(const DrawnTexts& drawn) {
  check(drawn.texts.size() == drawn.times.size() && !drawn.texts.empty(), "expected_scores",
        "expected texts and the times of each, got ", drawn.texts.size(), " and ",
        drawn.times.size(), '.');
  return std::accumulate(drawn.times.begin(), drawn.times.end(), int64_t{0});
}

// The counts of each text, orders 1 to `orders`.
std::vector<std::vector<OrderCounts>> count_all(const std::vector<Symbols>& texts,
                                                const std::vector<int64_t>& times, int orders) {
  size_t symbols = 0;
  for (const Symbols& text : texts) symbols += text.size();
  scores::NgramIds ids(symbols, orders);
  std::vector<std::vector<uint32_t>> ngrams;
  for (const Symbols& text : texts) ngrams.push_back(ids.list(text));
  const int64_t draws = std::accumulate(times.begin(), times.end(), int64_t{0});
  std::vector<int64_t> all(ids.size()), left(ids.size());
  std::vector<OrderCounts> sums(static_cast<size_t>(orders));
  for (size_t t = 0; t < texts.size(); ++t) {
    for (const uint32_t ngram : ngrams[t]) all[ngram] += times[t];
    for (int order = 1; order <= orders; ++order) {
      const size_t count = scores::ngrams_in(texts[t].size(), order);
      sums[static_cast<size_t>(order) - 1].available +=
          static_cast<double>(times[t]) * static_cast<double>(count);
    }
  }
  std::vector<std::vector<OrderCounts>> counts;
  for (size_t t = 0; t < texts.size(); ++t) {
    for (const uint32_t ngram : ngrams[t]) left[ngram] = all[ngram];
    counts.push_back(sums);
    const uint32_t* ngram = ngrams[t].data();
    for (int order = 1; order <= orders; ++order) {
      OrderCounts& own = counts.back()[static_cast<size_t>(order) - 1];
      const size_t given = scores::ngrams_in(texts[t].size(), order);
      own.given = static_cast<double>(draws) * static_cast<double>(given);
      // Each n-gram of the text counts once for each draw, as long as the draws have so many.
      for (size_t i = 0; i < given; ++i, ++ngram) {
        const int64_t matched = std::min(draws, left[*ngram]);
        left[*ngram] -= matched;
        own.matched += static_cast<double>(matched);
      }
    }
  }
  return counts;
}

double bleu_of(const std::vector<OrderCounts>& counts, double draws) {
  if (counts[0].matched == 0) return 0;
  double logarithms = 0;
  for (size_t n = 0; n < counts.size(); ++n) {
    const double added = n > 0 ? draws : 0;
    logarithms += std::log((counts[n].matched + added) / (counts[n].given + added));
  }
  const double brevity = std::min(0.0, 1 - counts[0].available / counts[0].given);
  return 100 * std::exp(brevity + logarithms / static_cast<double>(counts.size()));
}

}  // namespace

std::vector<double> expected_chrf(const DrawnTexts& drawn) {
  draws_of(drawn);
  const ChrfOptions options;
  const Chrf metric(options);
  std::vector<Symbols> texts;
  for (const std::string& text : drawn.texts) {
    texts.push_back(scores::symbols_of(text, /*lowercase=*/false));
    std::erase_if(texts.back(), [](char32_t c) { return is_space(c); });
  }
  std::vector<double> found;
  for (const auto& counts : count_all(texts, drawn.times, options.char_order)) {
    std::vector<double> sums;
    for (const OrderCounts& order : counts) {
      sums.insert(sums.end(),
                  {order.available > 0 ? order.given : 0, order.available, order.matched});
    }
    found.push_back(metric.score(sums.data()));
  }
  return found;
}

std::vector<double> expected_bleu(const DrawnTexts& drawn) {
  const auto draws = static_cast<double>(draws_of(drawn));
  const WordRule::Split split = word_rule(BleuOptions().tokenize, "").make("");
  std::vector<Symbols> parts, texts;  // the words are parts of them
  parts.reserve(drawn.texts.size());
  scores::WordIds ids;
  for (const std::string& text : drawn.texts) {
    parts.push_back(split(text));
    texts.push_back(ids.number(scores::split_words(parts.back())));
  }
  std::vector<double> found;
  for (const auto& counts : count_all(texts, drawn.times, BleuScore::kOrders)) {
    found.push_back(bleu_of(counts, draws));
  }
  return found;
}

std::vector<double> mean_scores(const Metric& metric, const DrawnTexts& drawn) {
  const auto draws = static_cast<double>(draws_of(drawn));
  const std::vector<std::string_view> hypotheses(drawn.texts.begin(), drawn.texts.end());
  std::vector<double> means(hypotheses.size()), numbers(hypotheses.size() * metric.width());
  for (size_t r = 0; r < drawn.texts.size(); ++r) {
    metric.measure(hypotheses, {&drawn.texts[r], 1}, numbers.data());
    for (size_t h = 0; h < means.size(); ++h) {
      means[h] += static_cast<double>(drawn.times[r]) *
                  metric.score(numbers.data() + h * metric.width()) / draws;
    }
  }
  return means;
}

}  // namespace tapestry
