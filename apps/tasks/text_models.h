// Trained causal models that answer together, and the predictions of a masked model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/model_choice.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// True if training separated documents by eos: then eos begins a text.
bool begins_with_eos(const Config& config);

/// Trained causal models over one vocabulary that answer together.
struct TextModels {
  /// Throws Error(kConfig) for weights that do not fit, Error(kData) if not all of them separated
  /// documents, and as read_model_files() and ModelBundle::load().
  TextModels(const ModelChoice& choice, const std::string& device, const std::string& who,
             Ability ability);

  const TextModel& first() const { return *members.at(0); }
  const Tokenizer& tokenizer() const { return *first().tokenizers.source; }
  /// Tokens of the longest sequence that all models were trained for ...
  int64_t positions() const;
  /// ... and of the longest that all can read.
  int64_t longest() const;
  /// True if one of them has prefix_lm.
  bool reads_prefixes() const;
  /// Steps for a search.
  std::unique_ptr<NextToken> steps() const;
  std::vector<const Trunk*> trunks() const;

  std::vector<std::unique_ptr<TextModel>> members;
  std::vector<double> weights;  ///< add up to 1
};

/// The ids of line `number`, from 1; each line is a document. A long one is cut, with a warning.
std::vector<int32_t> ids_to_score(const TextModels& models, const std::string& line,
                                  int64_t number);

/// One score for each result of ids_to_score(): of its tokens and the final eos. A model that was
/// trained on one long document does not know eos: then the score covers neither the first token,
/// which has no context, nor the end.
std::vector<Score> score_texts(const TextModels& models,
                               const std::vector<std::vector<int32_t>>& texts);

/// A prediction for one masked position.
struct Fill {
  int32_t token = 0;
  double probability = 0;
};
/// The most probable tokens for each mask in `ids`, best first. `ids` begins with bos.
std::vector<std::vector<Fill>> fill_masks(const TextModel& model, const std::vector<int32_t>& ids,
                                          int64_t top_k);

}  // namespace tapestry
