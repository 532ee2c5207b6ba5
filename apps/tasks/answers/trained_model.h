// A trained model that answers, for programs that are no `tapestry`: what its commands print comes
// from here or from what this calls.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/checkpoint/model_choice.h"
#include "apps/tasks/answers/holes.h"
#include "apps/tasks/classes/classification.h"
#include "apps/tasks/classes/token_classification.h"
#include "apps/tasks/question_answering.h"
#include "apps/tasks/task.h"
#include "data/tokenizers/languages.h"
#include "nn/decoding/decoding.h"

namespace tapestry {

/// One of the n best answers to a line.
struct AnsweredText {
  std::string text;            ///< of a continuation: without its prompt
  double log_probability = 0;  ///< of its tokens and, if it came, the end
  double score = 0;            ///< by which the n best compete
  bool finished = true;        ///< false: the length limit ended it
};

struct LoadedModel;

/// Functions may be called by one thread at a time; they compute on all threads of
/// set_num_threads(). Each throws Error(kConfig) where the model cannot do what is asked.
class TrainedModel {
 public:
  struct Options {
    std::string device = "auto";     ///< for parse_device()
    WeightChoice weights = {};       ///< of the matrices
    int64_t batch_size = 64;         ///< lines that a thread searches, or the model reads, at once
    LanguageOptions languages = {};  ///< of translations; "": the run's
  };

  /// From a checkpoint or run folder. Throws Error(kData) for one that is damaged.
  explicit TrainedModel(const std::string& path);
  TrainedModel(const std::string& path, Options options);
  ~TrainedModel();
  TrainedModel(TrainedModel&&) noexcept;
  TrainedModel& operator=(TrainedModel&&) noexcept;

  const Config& config() const;
  bool can(Ability ability) const { return config().task->can(ability); }
  /// Of both sides; none with images and points.
  const TokenizerPair& tokenizers() const;
  /// The options of the run's config, to change and to hand to a function below.
  const SearchOptions& search() const { return config().generation; }

  /// The n best translations of each line, best first; none of an empty line. Without `with_scores`
  /// log_probability and score need not be right, which some searches do faster.
  std::vector<std::vector<AnsweredText>> translate(const std::vector<std::string>& lines,
                                                   SearchOptions options,
                                                   bool with_scores = true) const;
  /// The best translation of each line, as the run's config searches; "" of an empty line.
  std::vector<std::string> translate(const std::vector<std::string>& lines) const;

  /// The n best continuations of each prompt, or n draws; each ends before one of the `stop` texts.
  std::vector<std::vector<AnsweredText>> generate(const std::vector<std::string>& prompts,
                                                  SearchOptions options,
                                                  const std::vector<std::string>& stop = {}) const;
  /// The best continuation of each prompt, as the run's config searches.
  std::vector<std::string> generate(const std::vector<std::string>& prompts) const;

  /// The probability of each text, and of its end.
  std::vector<Score> score(const std::vector<std::string>& texts) const;
  /// The probability of each target, given its source.
  std::vector<Score> score(const std::vector<std::string>& sources,
                           const std::vector<std::string>& targets) const;

  /// The vectors of texts (N, D) float32 in host memory. Throws Error(kData) for an empty text.
  Tensor embed(const std::vector<std::string>& texts) const;

  /// The classes of each text, or of the image in each file; none of an empty text. `seconds`: the
  /// second text of each, for a model that reads two in a row. Throws Error(kData) for an image
  /// that cannot be read.
  std::vector<std::vector<LabelProbability>> classify(
      const std::vector<std::string>& texts, const ClassChoice& choice,
      const std::vector<std::string>& seconds = {}) const;
  /// By a model of text_regression: the number of each text; NaN of an empty one.
  std::vector<double> rate(const std::vector<std::string>& texts,
                           const std::vector<std::string>& seconds = {}) const;
  /// By a model of question_answering: the n best answers to each question out of the context
  /// beside it; none if one of both is empty.
  std::vector<std::vector<FoundAnswer>> answer(const std::vector<std::string>& questions,
                                               const std::vector<std::string>& contexts,
                                               int64_t n_best = 1) const;
  /// By a model of regression: of each point, which has as many numbers as there are columns of x,
  /// its y, or the share of each class.
  std::vector<std::vector<double>> predict(const std::vector<std::vector<double>>& x) const;
  /// The label of each word of each text, with the words.
  std::vector<std::pair<TextInWords, std::vector<WordLabel>>> label_words(
      const std::vector<std::string>& texts) const;

  /// By a masked model: for each <mask> of each line its most probable words, best first.
  std::vector<std::vector<std::vector<WordGuess>>> guess_words(
      const std::vector<std::string>& lines, int64_t top_k) const;
  /// By a denoising model: the lines with their holes filled.
  std::vector<std::string> restore(const std::vector<std::string>& lines,
                                   const SearchOptions& options) const;

 private:
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace tapestry
