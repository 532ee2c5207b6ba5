// Word-level distillation: a model learns each target token from another one's probabilities, too.
#pragma once

#include <type_traits>

#include "nn/models/language_model.h"
#include "nn/models/transformer.h"

namespace tapestry {

/// The hidden states of a batch's targets, by an EncoderDecoder or a RnnAttention, whatever its
/// alignment ...
template <class Model>
requires(!std::is_same_v<Model, LanguageModel>) Var
    target_states(const Model& model, const EncoderDecoder::Batch& batch) {
  const Var memory = model.encode(batch.source, batch.source_lengths);
  return model.decode(batch.target_in, memory, batch.source_lengths);
}
inline const Tensor& targets_of(const EncoderDecoder::Batch& batch) { return batch.target_out; }

/// ... or by a causal model.
inline Var target_states(const LanguageModel& model, const LanguageModel::Batch& batch) {
  return model.hidden(batch);
}
inline const Tensor& targets_of(const LanguageModel::Batch& batch) { return batch.targets; }

/// The logits that a model gives to the targets of a batch, as Distillation::logits. It runs
/// without a tape, so without dropout, and must outlive the result.
template <class Model, class Batch>
std::function<Tensor(int64_t, int64_t)> teacher_logits(const Model& model, const Batch& batch) {
  const NoTape constants;
  const Tensor hidden = target_states(model, batch).value();
  const Tensor rows = hidden.reshape({hidden.shape().rows(), hidden.shape().cols()});
  return [&model, rows](int64_t begin, int64_t end) {
    return model.logits(Var(rows.slice(begin, end))).value();
  };
}

/// The loss of a batch with a teacher, whose model may be another one of the same batches.
template <class Model, class Batch>
CrossEntropy distilled_loss(const Model& model, const Batch& batch, CrossEntropyOptions options,
                            const Distillation& teacher) {
  options.ignore_index = model.vocabulary.no_target;
  const auto loss_of = [&](const Var& hidden) {
    return distilled_cross_entropy(model.logits(hidden), targets_of(batch), options, teacher);
  };
  if constexpr (requires { batch.alignment; }) {
    const TargetStates states(model, batch);
    return states.with_alignment(loss_of(states.hidden), batch.alignment, options.normalizer);
  } else {
    return loss_of(target_states(model, batch));
  }
}

}  // namespace tapestry
