// Word-level distillation: a model learns each target token from another one's probabilities, too.
#pragma once

#include "nn/models/transformer.h"

namespace tapestry {

/// The logits that a model gives to the target tokens of a batch, as Distillation::logits. It runs
/// without a tape, so without dropout, and must outlive the result.
template <class Model>
std::function<Tensor(int64_t, int64_t)> teacher_logits(const Model& model,
                                                       const EncoderDecoder::Batch& batch) {
  const NoTape constants;
  const Var memory = model.encode(batch.source, batch.source_lengths);
  const Tensor hidden = model.decode(batch.target_in, memory, batch.source_lengths).value();
  const Tensor rows = hidden.reshape({hidden.shape().rows(), hidden.shape().cols()});
  return [&model, rows](int64_t begin, int64_t end) {
    return model.logits(Var(rows.slice(begin, end))).value();
  };
}

/// The loss of a batch by a model that is an EncoderDecoder or a RnnAttention, with a teacher of
/// either kind.
template <class Model>
CrossEntropy distilled_loss(const Model& model, const EncoderDecoder::Batch& batch,
                            CrossEntropyOptions options, const Distillation& teacher) {
  const Var memory = model.encode(batch.source, batch.source_lengths);
  const Var hidden = model.decode(batch.target_in, memory, batch.source_lengths);
  options.ignore_index = model.vocabulary.no_target;
  return distilled_cross_entropy(model.logits(hidden), batch.target_out, options, teacher);
}

}  // namespace tapestry
