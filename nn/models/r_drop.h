// R-Drop (Liang et al. 2021): a batch goes through the model twice, with other dropout, and the two
// predictions are pulled together.
#pragma once

#include "nn/models/transformer.h"

namespace tapestry {

/// logits (2R, ..., V): rows R and on are the other pass over the rows before. targets (R, ...) and
/// options.weights are those of one pass. loss = half of the sum of both passes' cross-entropies +
/// alpha / 4 * the sum of KL(p || q) + KL(q || p) over rows with a target, times their weights, all
/// over the normalizer: half of the paper's, so that alpha 0 is the usual loss. `sums` are the mean
/// of both passes' cross-entropies; the divergence is not in them. All logits are in memory.
CrossEntropy r_drop_of_logits(const Var& logits, const Tensor& targets,
                              const CrossEntropyOptions& options, double alpha);

/// The rows of a tensor in host memory, and the same again behind them. A batch is doubled before
/// it is sent to a GPU.
Tensor twice(const Tensor& rows);

/// That loss by a model that is an EncoderDecoder or a RnnAttention. The inputs of `batch` have the
/// rows of both passes (twice()), its target_out and the shares of its alignment have those of one.
template <class Model>
CrossEntropy r_drop_loss(const Model& model, const EncoderDecoder::Batch& batch,
                         CrossEntropyOptions options, double alpha) {
  const TargetStates states(model, batch);
  options.ignore_index = model.vocabulary.no_target;
  return states.with_alignment(
      r_drop_of_logits(model.logits(states.hidden), batch.target_out, options, alpha),
      batch.alignment, options.normalizer);
}

}  // namespace tapestry
