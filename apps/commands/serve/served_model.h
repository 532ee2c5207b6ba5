// A trained model that answers many clients at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/serve/call.h"
#include "apps/commands/serve/joined_search.h"
#include "apps/tasks/answers/required_texts.h"
#include "apps/tasks/answers/text_generator.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/prompts/chat_answers.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// What a search found for each text of a request; its parts end on threads of the search.
class FoundTexts {
 public:
  explicit FoundTexts(size_t texts) : found_(texts), left_(static_cast<int64_t>(texts)) {}

  void set(size_t text, std::vector<Hypothesis> found);
  void fail(const std::string& problem);
  /// Throws HttpError(503) when the deadline is over, and cancels the rest; HttpError(500) if the
  /// search failed.
  std::vector<std::vector<Hypothesis>> wait(const CallEnd& end);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<Hypothesis>> found_;
  int64_t left_;
  std::string problem_;
};

/// Throws Error(kConfig) for a model that nothing here serves.
void check_served(const Config& config, const std::string& path);

class ServedModel {
 public:
  struct Options {
    std::string device = "auto";
    WeightChoice format = {};
    int64_t batch_size = 64;
  };

  /// Reads a checkpoint or run folder. Throws as the commands do, and Error(kConfig) for a task
  /// that nothing here serves.
  ServedModel(std::string name, const std::string& path, const Options& options);
  ~ServedModel();

  const std::string& name() const { return name_; }
  const Config& config() const { return config_; }
  int64_t batch_size() const { return options_.batch_size; }
  /// With several abilities: one of them.
  bool can(Ability ability) const { return config_.task->can(ability); }
  /// True if it answers talks.
  bool talks() const { return chat_.has_value(); }

  /// Of a model that translates. The n best translations of each line, as `tapestry translate`
  /// finds them; none of an empty line. `required`, which may be null, says what they must contain.
  std::vector<std::vector<Hypothesis>> translate(const std::vector<std::string>& lines,
                                                 SearchOptions options, const CallEnd& end,
                                                 RequiredTexts* required = nullptr);
  std::string text_of(const Hypothesis& translation) const;
  const Translator& pairs() const { return *pairs_; }
  const Tokenizer& target_tokenizer() const { return *pairs_->tokenizers().target; }
  /// The probability of each target, given its source.
  std::vector<Score> score(const std::vector<std::string>& sources,
                           const std::vector<std::string>& targets, const CallEnd& end);

  /// Of a model that continues texts.
  const TextModels& texts() const { return *texts_; }
  const ChatAnswers& chat() const { return *chat_; }
  /// A prompt to continue. The three functions are called from threads of the search.
  struct Continuation {
    std::shared_ptr<const TextGenerator> generator = {};  ///< of texts()
    std::vector<int32_t> prompt = {};
    int64_t number = 0;  ///< of the prompt in its request, for its draws
    int64_t draw = 0;
    int64_t most_tokens = 1;
    CallEnd end = {};
    std::function<bool(const std::vector<int32_t>& generated)> on_token = {};
    std::function<void(std::vector<Hypothesis>)> done = {};
    std::function<void(const std::string& problem)> failed = {};
  };
  void generate(Continuation continuation);

  /// Of the other tasks.
  bool has_masked() const { return masked_ != nullptr; }
  const TextModel& masked() const { return *masked_; }
  bool has_classifier() const { return classifier_ != nullptr; }
  const TextClassifier& classifier() const { return *classifier_; }
  const SpanModel& spans() const { return *spans_; }
  const EmbeddingModel& embedder() const { return *embedder_; }
  /// Hold it while such a model, or one that scores, computes.
  Turns& computing() { return computing_; }

  /// Requests that joined a search which had others already.
  int64_t joined() const;

 private:
  std::shared_ptr<JoinedSearch> search_for(const JoinedSearch::Setup& setup);

  const std::string name_;
  const Options options_;
  Config config_;
  std::optional<Translator> pairs_;
  std::optional<TextModels> texts_;
  std::optional<ChatAnswers> chat_;
  std::unique_ptr<TextModel> masked_;
  std::unique_ptr<TextClassifier> classifier_;
  std::unique_ptr<SpanModel> spans_;
  std::unique_ptr<EmbeddingModel> embedder_;
  Turns computing_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<JoinedSearch>> searches_;  // by options, the last used first
  int64_t joined_before_ = 0;                          // of searches that are gone
};

}  // namespace tapestry
