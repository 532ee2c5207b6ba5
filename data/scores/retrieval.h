// How well texts find the one that belongs to them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace tapestry {

/// "recall_at_1", "recall_at_5" and "recall_at_10", the share in percent of texts whose own one is
/// among the first k, and "mrr", the mean of 1 / rank. Ranks begin at 1; without any, all are 0.
std::map<std::string, double> retrieval_scores(std::span<const int64_t> ranks);

}  // namespace tapestry
