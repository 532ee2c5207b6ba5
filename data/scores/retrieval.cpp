#include "data/scores/retrieval.h"

#include <algorithm>

namespace tapestry {

std::map<std::string, double> retrieval_scores(std::span<const int64_t> ranks) {
  const double count = std::max<double>(1, static_cast<double>(ranks.size()));
  std::map<std::string, double> scores;
  for (const int64_t k : {1, 5, 10}) {
    const auto found = std::ranges::count_if(ranks, [k](int64_t rank) { return rank <= k; });
    scores["recall_at_" + std::to_string(k)] = 100 * static_cast<double>(found) / count;
  }
  double sum = 0;
  for (const int64_t rank : ranks) sum += 1 / static_cast<double>(rank);
  scores["mrr"] = sum / count;
  return scores;
}

}  // namespace tapestry
