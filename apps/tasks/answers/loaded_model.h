// What a TrainedModel loaded; private to apps/tasks/answers/.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "apps/tasks/answers/trained_model.h"
#include "apps/tasks/answers/translator.h"
#include "apps/tasks/embedding.h"
#include "apps/tasks/long_line.h"
#include "apps/tasks/regression.h"
#include "core/base/interruption.h"

namespace tapestry {

/// The model of a config that `who` needs, if it was loaded and has the ability.
template <class Model>
const Model& needed(const std::unique_ptr<Model>& model, const char* who, Ability ability,
                    const Config& config) {
  if (model && config.task->can(ability)) return *model;
  fail(ErrorKind::kConfig, '[', who, "] needs a model of task ", tasks_that_can(ability), ", got ",
       config.task->name, '.');
}

/// The model of a run, of the kind that its task asks for. Throws Error(kConfig) for a task that
/// answers nothing.
struct LoadedModel {
  LoadedModel(const std::string& path, TrainedModel::Options options_in);

  TrainedModel::Options options;
  Config config;
  // One of these.
  std::unique_ptr<Translator> pairs;
  std::unique_ptr<TextModels> texts;
  std::unique_ptr<TextModel> masked;
  std::unique_ptr<TextClassifier> text_classes;
  std::unique_ptr<ImageModel> image_classes;
  std::unique_ptr<TokenClassifierModel> word_labels;
  std::unique_ptr<EmbeddingModel> vectors;
  std::unique_ptr<SpanModel> spans;
  std::unique_ptr<RegressionModel> points;
  std::optional<SearchOptions> listed;  // whose shortlist is in use

  const TokenizerPair& tokenizers() const;

  /// Reads the file of a shortlist only where it is another one than before.
  void use_shortlist(const SearchOptions& search);

  const Translator& translator(const char* who, Ability ability = kTranslates) const {
    return needed(pairs, who, ability, config);
  }
  const TextModels& text_models(const char* who) const {
    return needed(texts, who, kContinuesText, config);
  }

  /// Calls f(begin, end) for the lines that are searched, or that the model reads, together.
  template <class F>
  static void in_parts(size_t lines, int64_t most, F f) {
    const auto part = static_cast<size_t>(most);
    for (size_t begin = 0; begin < lines; begin += part) {
      stop_if_asked();
      f(begin, std::min(begin + part, lines));
    }
  }
  template <class F>
  void in_batches(size_t lines, F f) const {
    in_parts(lines, options.batch_size, f);
  }
  template <class F>
  void in_windows(size_t lines, F f) const {
    in_parts(lines, window_of(options.batch_size), f);
  }

 private:
  void load(const std::string& path, Ability ability);
};

}  // namespace tapestry
