// Continuations of prompts by trained causal models.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/tasks/text_models.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// A text to continue, as the models read it.
struct Prompt {
  std::string text = {};
  std::vector<int32_t> ids = {};  ///< with what begins a text in front, if the models have it
  int64_t frame = 0;              ///< so many of them
  int64_t number = 0;             ///< in the whole input: sampling draws by it
  /// Nothing is asked: the text has nothing that the models read. It is no part of a search.
  bool blank = false;
};

class TextGenerator {
 public:
  /// `stop`: texts that end a continuation, and are left out; none is empty. `reader`: reads
  /// prompts instead of the models' tokenizer; its ends end a continuation. Throws Error(kConfig)
  /// for options that are out of range.
  TextGenerator(const TextModels& models, SearchOptions options, std::vector<std::string> stop,
                std::shared_ptr<const Tokenizer> reader = nullptr);

  /// Takes the prompt of a place ("line 7"), which a warning names if the prompt is cut to what the
  /// models can read. Throws Error(kData) where it is empty and the models know no beginning.
  /// `may_be_empty`: then a text is written from its beginning.
  Prompt prompt(const std::string& text, const std::string& place, bool may_be_empty) const;

  /// True if prompt() would not cut the text; `with_room`: and it leaves room for a continuation.
  bool fits(const std::string& text, bool with_room) const;

  struct Hooks {
    /// Gets what can no longer change of continuation `i`, each time that it has grown; may be
    /// empty.
    std::function<void(size_t i, const std::string& text)> grows = {};
    /// Gets the best continuations of prompt `i`, best first, of one thread at a time.
    std::function<void(size_t i, std::vector<Hypothesis> found)> done;
    bool token_log_probabilities = false;  ///< hypotheses have them
  };
  /// Continues prompts, none of which is blank, so many at once.
  void run(const std::vector<const Prompt*>& prompts, int64_t sequences_at_once,
           const Hooks& hooks) const;

  /// What a search of these models must know, but for its prompts.
  SearchTask task() const;
  /// The most tokens, with eos, that may follow a prompt. Throws as generation_limit().
  int64_t limit(const Prompt& prompt) const;
  /// What can no longer change of the continuation by these tokens; `ended`: a stop text came.
  std::string settled_text(const Prompt& prompt, const std::vector<int32_t>& generated,
                           bool& ended) const;
  const SearchOptions& options() const { return options_; }

  /// The continuation, up to where it must stop.
  std::string text_of(const Prompt& prompt, const Hypothesis& found) const;

 private:
  const Config& config() const { return models_.first().config; }
  const Tokenizer& tokenizer() const { return reader_ ? *reader_ : models_.tokenizer(); }
  std::vector<int32_t> beginning_of(const std::vector<int32_t>& ids) const;
  int64_t most_of_a_prompt() const;
  int64_t room() const;

  const TextModels& models_;
  SearchOptions options_;
  int64_t n_best_;
  std::vector<std::string> stop_;
  std::shared_ptr<const Tokenizer> reader_;
};

}  // namespace tapestry
