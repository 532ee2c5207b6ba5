// The log-probabilities of an answer's tokens, as OpenAI's clients ask for them and read them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/serve/call.h"
#include "apps/commands/serve/continuation.h"
#include "apps/commands/serve/token_scores.h"

namespace tapestry {

struct WantedScores {
  bool any = false;
  int64_t top = 0;  ///< of each place
  bool chat = false;
  bool own_is_best = false;  ///< the only one that is wanted is the one that is chosen

  /// The field "logprobs" of /v1/completions. Throws HttpError(400).
  static WantedScores of_completions(const Call& call);
  /// The fields "logprobs" and "top_logprobs" of /v1/chat/completions. Throws HttpError(400).
  static WantedScores of_chat(const Call& call);
};

/// A list of tokens with their log-probabilities.
class LogProbabilities {
 public:
  LogProbabilities(const Tokenizer& tokenizer, const WantedScores& wanted)
      : tokenizer_(tokenizer), wanted_(wanted) {}

  void add(const PlaceScores& place);
  /// The first token of a text, which has no context.
  void add_first(int32_t token);
  /// Null if none are wanted.
  Json json() const;

 private:
  Json top_of(const PlaceScores& place) const;

  const Tokenizer& tokenizer_;
  const WantedScores wanted_;
  Json content_ = Json::array();  // of a chat
  Json tokens_ = Json::array(), each_ = Json::array(), top_ = Json::array();
};

/// Finds the scores of a choice's tokens, as they come or when all are there.
class ChoiceScores {
 public:
  /// The model and the tokenizer must outlive it.
  ChoiceScores(ServedModel& model, const Tokenizer& tokenizer, const WantedScores& wanted,
               std::vector<int32_t> prompt, const CallEnd& end);

  /// Adds the generated tokens that `listed` has not yet: of a part of an answer, or of a whole
  /// one.
  void add(const std::vector<int32_t>& generated, LogProbabilities& listed);
  void add(const Hypothesis& found, LogProbabilities& listed);

 private:
  const Tokenizer& tokenizer_;
  const WantedScores wanted_;
  const CallEnd end_;
  NextScores next_;
  size_t listed_ = 0;
};

}  // namespace tapestry
