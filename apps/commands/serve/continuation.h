// Continuations of a request's prompts, whole or as they grow: what /v1/completions and
// /v1/chat/completions share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/service.h"

namespace tapestry {

/// The fields that both endpoints have.
std::vector<Field> continuation_fields(std::vector<Field> own);

/// How a request wants its prompts continued. Throws HttpError(400) for fields out of range.
struct Wanted {
  Wanted(const Service& service, const ServedModel& model, const Call& call, int64_t usual_tokens);

  SearchOptions options;
  std::vector<std::string> stop;
  int64_t n = 1;            ///< draws of each prompt
  int64_t most_tokens = 0;  ///< 0: as many as the model has room for
  bool stream = false;
  bool with_tokens = false;  ///< parts of a stream have them
};

/// What came to a continuation since the part before.
struct GrownPart {
  std::string text = {};
  std::vector<int32_t> generated = {};  ///< all tokens until now, if Wanted::with_tokens
};

/// One continuation of a prompt.
struct Choice {
  std::string text = {};
  Hypothesis found = {};
  const char* finish_reason = "length";
};

/// The continuations of one request.
class Continuations {
 public:
  /// `generator` and `model` must outlive it, prompts are ids.
  Continuations(ServedModel& model, std::shared_ptr<const TextGenerator> generator,
                std::vector<std::vector<int32_t>> prompts, const Wanted& wanted,
                const CallEnd& end);
  ~Continuations();

  /// Calls grown(i, part) for each new part of choice i, and ended(i, choice) at its end, on this
  /// thread; `grown` may be empty. Throws HttpError(503) if the deadline comes first.
  void run(const std::function<void(size_t choice, const GrownPart& part)>& grown,
           const std::function<void(size_t choice, const Choice& result)>& ended);

  int64_t prompt_tokens() const;
  /// Of a choice.
  const std::vector<int32_t>& prompt_of(size_t choice) const {
    return prompts_[choice / static_cast<size_t>(wanted_.n)];
  }

 private:
  struct Shared;

  void start(size_t choice);

  ServedModel& model_;
  const std::vector<std::vector<int32_t>> prompts_;
  const Wanted wanted_;
  const CallEnd end_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tapestry
