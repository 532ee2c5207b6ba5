// The class of a whole sequence, read from its first token or from the mean of all.
#pragma once

#include <optional>

#include "nn/models/model_options.h"

namespace tapestry {

/// The vectors of texts, (B, D), float32 or wider, of their tokens' hidden (B, T, D): the mean, or
/// that of one token. lengths (B) in host memory.
Var pooled_texts(const Var& hidden, const Tensor& lengths, TextPooling pooling);

/// The hidden layer in front of a classifier, as ModelOptions::pooler says.
struct PoolerLayer {
  PoolerLayer(const ModelOptions& options, const ParamScope& scope);
  /// (..., D) -> (..., D).
  Var operator()(const Var& x) const;

  Pooler kind;
  Linear dense;
  std::optional<Norm> norm;  ///< of Pooler::kNormed
};

/// That of each token, with ModelOptions::pooled_tokens.
std::optional<PoolerLayer> token_pooler(const ModelOptions& options, const ParamScope& scope);

/// classifier(dropout(pooler(x))): an MLP of one hidden layer of size D (Devlin et al. 2019;
/// Dosovitskiy et al. 2021, 3.1), where ModelOptions::class_pooling says what x is. Without pooler
/// only classifier(x).
struct ClassifierHead {
  ClassifierHead(const ModelOptions& options, int64_t classes, bool pooled,
                 const ParamScope& scope);
  /// x (B, T, D), lengths (B), which only a mean needs -> logits (B, classes).
  Var operator()(const Var& x, const Tensor& lengths = {}) const;

  double dropout;
  TextPooling pooling;
  std::optional<PoolerLayer> pooler;
  Linear classifier;
};

}  // namespace tapestry
