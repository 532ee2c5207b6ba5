// The class of a whole sequence, read from its first token.
#pragma once

#include <optional>

#include "nn/models/model_options.h"

namespace tapestry {

/// classifier(dropout(act(pooler(x_0)))): an MLP of one hidden layer of size D (Devlin et al.
/// 2019; Dosovitskiy et al. 2021, 3.1); ModelOptions::pooler says which. Without pooler only
/// classifier(x_0).
struct ClassifierHead {
  ClassifierHead(const ModelOptions& options, int64_t classes, bool pooled,
                 const ParamScope& scope);
  /// x (B, T, D) -> logits (B, classes).
  Var operator()(const Var& x) const;

  double dropout;
  Pooler kind;
  std::optional<Linear> pooler;
  std::optional<Norm> norm;  ///< of Pooler::kNormed
  Linear classifier;
};

}  // namespace tapestry
