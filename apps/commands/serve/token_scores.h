// The log-probabilities of a text's tokens, with the best token of each place.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/commands/serve/served_model.h"

namespace tapestry {

/// Of ids[1], ids[2], ...: the first has no context.
struct TokenScores {
  std::vector<double> each;        ///< log-probabilities
  std::vector<int32_t> best = {};  ///< the most probable token of each place
  std::vector<double> best_each = {};
};

/// By a model that continues texts. Throws HttpError(400) for more tokens than it reads at once.
TokenScores token_scores(ServedModel& model, const std::vector<int32_t>& ids);

}  // namespace tapestry
