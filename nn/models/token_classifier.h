// The class of each token of a sequence: names in a text, parts of speech.
#pragma once

#include "nn/models/language_model.h"

namespace tapestry {

/// A trunk with a linear layer that gives each token its logits (Devlin et al. 2019, 5.3), behind
/// the pooler with ModelOptions::pooled_tokens.
struct TokenClassifier {
  TokenClassifier(const ModelOptions& options, const LanguageModel::Vocabulary& vocabulary,
                  int64_t classes, const ParamScope& scope);

  /// ids (B, T), lengths (B), segments (B, T) or undefined -> (B, T, D), the head's input.
  Var hidden(const Tensor& ids, const Tensor& lengths, const Tensor& segments = {}) const;
  /// hidden (..., D) -> logits (..., classes).
  Var logits(const Var& hidden) const { return head(hidden); }
  /// Cross-entropy at the places of hidden (B, T, D) that have a label: labels (B, T) in host
  /// memory, kNone where there is none.
  CrossEntropy loss(const Var& hidden, const Tensor& labels,
                    const CrossEntropyOptions& options) const;
  static constexpr int32_t kNone = -1;

  Trunk trunk;
  std::optional<PoolerLayer> pooler;
  double dropout;
  Linear head;  ///< (D -> classes)
};

}  // namespace tapestry
