#include "apps/commands/serve/log_probabilities.h"

#include "apps/commands/serve/http_error.h"

namespace tapestry {
namespace {

int64_t checked_top(const Call& call, const char* field, int64_t most) {
  const int64_t top = call.integer(field, 0);
  if (top >= 0 && top <= most) return top;
  refuse(400, "the field '", field, "' must be in [0, ", most, "], got ", top, '.');
}

}  // namespace

WantedScores WantedScores::of_completions(const Call& call) {
  return {.any = call.has("logprobs"), .top = checked_top(call, "logprobs", 5)};
}

WantedScores WantedScores::of_chat(const Call& call) {
  const WantedScores wanted{
      .any = call.is_true("logprobs"), .top = checked_top(call, "top_logprobs", 20), .chat = true};
  if (!wanted.any && call.has("top_logprobs")) {
    refuse(400, "the field 'top_logprobs' needs 'logprobs': true.");
  }
  return wanted;
}

Json LogProbabilities::top_of(const PlaceScores& place) const {
  Json top = wanted_.chat ? Json::array() : Json::object();
  for (const auto& [token, log_probability] : place.top) {
    const std::string piece = tokenizer_.piece(token);
    if (wanted_.chat) {
      top.push_back({{"token", piece}, {"logprob", log_probability}, {"bytes", nullptr}});
    } else {
      top[piece] = log_probability;
    }
  }
  // OpenAI's has the token itself, too.
  if (!wanted_.chat) top[tokenizer_.piece(place.own.token)] = place.own.log_probability;
  return top;
}

void LogProbabilities::add(const PlaceScores& place) {
  const std::string piece = tokenizer_.piece(place.own.token);
  if (wanted_.chat) {
    content_.push_back({{"token", piece},
                        {"logprob", place.own.log_probability},
                        {"bytes", nullptr},
                        {"top_logprobs", top_of(place)}});
    return;
  }
  tokens_.push_back(piece);
  each_.push_back(place.own.log_probability);
  top_.push_back(top_of(place));
}

void LogProbabilities::add_first(int32_t token) {
  tokens_.push_back(tokenizer_.piece(token));
  each_.push_back(nullptr);
  top_.push_back(nullptr);
}

Json LogProbabilities::json() const {
  if (!wanted_.any) return nullptr;
  if (wanted_.chat) return {{"content", content_}, {"refusal", nullptr}};
  return {{"tokens", tokens_}, {"token_logprobs", each_}, {"top_logprobs", top_}};
}

ChoiceScores::ChoiceScores(ServedModel& model, const Tokenizer& tokenizer,
                           const WantedScores& wanted, std::vector<int32_t> prompt,
                           const CallEnd& end)
    : tokenizer_(tokenizer),
      wanted_(wanted),
      end_(end),
      next_(model, std::move(prompt), wanted.top) {}

void ChoiceScores::add(const std::vector<int32_t>& generated, LogProbabilities& listed) {
  for (; wanted_.any && listed_ < generated.size(); ++listed_) {
    listed.add(next_.next(generated[listed_], end_));
  }
}

void ChoiceScores::add(const Hypothesis& found, LogProbabilities& listed) {
  // The search knows of each token its own score only.
  const std::vector<double>& each = found.token_log_probabilities;
  std::vector<int32_t> tokens = found.tokens;
  if (each.size() > tokens.size()) tokens.push_back(tokenizer_.special().eos);
  if ((wanted_.top > 0 && !wanted_.own_is_best) || listed_ > 0) return add(tokens, listed);
  for (; wanted_.any && listed_ < std::min(tokens.size(), each.size()); ++listed_) {
    listed.add({.own = {tokens[listed_], each[listed_]}});
  }
}

}  // namespace tapestry
