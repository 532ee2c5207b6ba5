// Shared by the tasks that train encoder-decoders on pairs: the loss of a batch, and the choice of
// the model.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/row_texts.h"
#include "apps/tasks/supervised_task.h"
#include "apps/tasks/training_loss.h"
#include "nn/models/r_drop.h"

namespace tapestry {

/// Targets stay on the host: the loss validates them without waiting for the GPU.
inline EncoderDecoder::Batch on_device(const TranslationBatch& batch, Device device) {
  return {batch.source.to(device), batch.source_lengths.to(device), batch.target_in.to(device),
          batch.target_out};
}

/// The same with the inputs of R-Drop's two passes.
inline EncoderDecoder::Batch both_on_device(const TranslationBatch& batch, Device device) {
  return {twice(batch.source).to(device), twice(batch.source_lengths).to(device),
          twice(batch.target_in).to(device), batch.target_out};
}

/// What the attention learns from a batch in training; nothing without alignments.
inline GuidedAlignment alignment_of(const TranslationBatch& batch, const Config& config,
                                    Device device) {
  if (!batch.alignment.defined()) return {};
  const Tensor lengths =
      config.training.r_drop > 0 ? twice(batch.source_lengths) : batch.source_lengths;
  return {batch.alignment.to(device), hidden_keys(lengths, batch.source.shape()[1]).to(device),
          config.training.alignment_weight};
}

template <class Model>
CrossEntropy loss_of(const TranslationModel<Model>& model, const TranslationBatch& batch,
                     CrossEntropyOptions options) {
  options.weights = batch.target_weights;
  return model.model.loss(on_device(batch, model.device()), options);
}

/// The loss over one epoch of a walk.
template <class Model, class Batches>
LossSums loss_over(const TranslationModel<Model>& model, Batches batches,
                   const CrossEntropyOptions& options, const RankGroup& group) {
  return loss_over_epoch(std::move(batches), group, [&](const TranslationBatch& batch) {
    return loss_of(model, batch, options);
  });
}

/// What the Kinds of SupervisedTask have in common that train either encoder-decoder on pairs.
template <class Model>
struct PairKind {
  static UpdateSize size_of(const TranslationBatch& batch) {
    return {.tokens = batch.source_tokens + batch.target_tokens, .targets = batch.target_weight()};
  }
  /// In training.
  CrossEntropy loss(const TranslationBatch& batch, const CrossEntropyOptions& options) const {
    CrossEntropyOptions weighted = options;
    weighted.weights = batch.target_weights;
    const Device device = model->device();
    const double alpha = model->config.training.r_drop;
    EncoderDecoder::Batch rows =
        alpha > 0 ? both_on_device(batch, device) : on_device(batch, device);
    rows.alignment = alignment_of(batch, model->config, device);
    if (alpha > 0) return r_drop_loss(model->model, rows, weighted, alpha);
    return training_loss(model->model, rows, weighted, teacher.get());
  }
  std::vector<std::string> texts(const TranslationBatch& batch) const {
    const TokenizerPair& tokenizers = model->tokenizers;
    return row_texts(batch.rows, batch.indices, [&](int64_t row) {
      return concat(
          tokenizers.source->decode(ids_of_row(batch.source, row, batch.source_lengths)), "  ->  ",
          tokenizers.target->decode(ids_of_row(batch.target_out, row, batch.target_lengths)));
    });
  }
  int64_t choices() const { return model->tokenizers.target->vocab_size(); }

  std::unique_ptr<TranslationModel<Model>> model;
  std::unique_ptr<Teacher> teacher = nullptr;  ///< of training.teacher
};

}  // namespace tapestry
