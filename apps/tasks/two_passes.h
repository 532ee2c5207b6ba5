// The training loss of models whose logits are a function of a batch: one pass, or R-Drop's two.
#pragma once

#include "apps/config/config.h"
#include "nn/models/r_drop.h"

namespace tapestry {

/// What a model reads of a batch, twice: images, or texts with their lengths.
template <class Batch>
Batch both_passes(Batch batch) {
  if constexpr (requires { batch.pixels; }) {
    batch.pixels = twice(batch.pixels);
  } else {
    batch.ids = twice(batch.ids);
    batch.lengths = twice(batch.lengths);
    if constexpr (requires { batch.segments; }) {
      if (batch.segments.defined()) batch.segments = twice(batch.segments);
    }
  }
  return batch;
}

/// `targets` are those of one pass; logits(batch) has a row of classes for each of them.
template <class Batch, class Logits>
CrossEntropy loss_in_passes(const Config& config, const Batch& batch, const Tensor& targets,
                            const CrossEntropyOptions& options, Logits logits) {
  const double alpha = config.training.r_drop;
  if (alpha == 0) return cross_entropy(logits(batch), targets, options);
  return r_drop_of_logits(logits(both_passes(batch)), targets, options, alpha);
}

}  // namespace tapestry
