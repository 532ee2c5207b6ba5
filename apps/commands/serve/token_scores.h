// The log-probabilities of a text's tokens, with the best tokens of each place.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/commands/serve/served_model.h"

namespace tapestry {

struct TokenScore {
  int32_t token = 0;
  double log_probability = 0;
};

/// One place of a text: what stands there, and what the model would rather have there.
struct PlaceScores {
  TokenScore own = {};
  std::vector<TokenScore> top = {};  ///< the most probable ones, the best first
};

/// Of ids[1], ids[2], ...: the first has no context. By a model that continues texts, in one pass.
/// Throws HttpError(400) for more tokens than it reads at once, and as Turns::Turn.
std::vector<PlaceScores> token_scores(ServedModel& model, const std::vector<int32_t>& ids,
                                      int64_t top, const CallEnd& end);

/// The same of tokens that come one after the other, behind a prompt. It reads them beside the
/// search that finds them, so an answer with such lists takes about twice the time.
class NextScores {
 public:
  /// `model` must outlive it; the prompt is not empty.
  NextScores(ServedModel& model, std::vector<int32_t> prompt, int64_t top);

  /// Throws as Turns::Turn.
  PlaceScores next(int32_t token, const CallEnd& end);

 private:
  ServedModel& model_;
  const std::vector<int32_t> prompt_;
  const int64_t top_;
  std::unique_ptr<NextToken> steps_;
  int32_t fed_;  // by the next step
};

}  // namespace tapestry
