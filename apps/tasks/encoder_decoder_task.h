// Shared by the tasks that train encoder-decoders: batches, loss, and the choice of the model.
#pragma once

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/micro_batches.h"
#include "apps/tasks/task.h"
#include "data/loader.h"

namespace tapestry {

/// Targets stay on the host: the loss validates them without waiting for the GPU.
inline EncoderDecoder::Batch on_device(const TranslationBatch& batch, Device device) {
  return {batch.source.to(device), batch.source_lengths.to(device), batch.target_in.to(device),
          batch.target_out};
}

inline BatchOptions unshuffled(BatchOptions options) {
  options.shuffle = false;
  return options;
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

/// Trains either kind of encoder-decoder on any walk that yields TranslationBatch.
template <class Model, class Batches>
class EncoderDecoderTask : public TrainingTask {
 public:
  explicit EncoderDecoderTask(const TaskPlace& place) : group_(place.group) {}

  ParamStore& parameters() override { return model_->store; }

  UpdateSize next_update(int64_t micro_batches) override {
    update_.clear();
    for (int64_t i = 0; i < micro_batches; ++i) {
      append_in_parts(loader_->next().batch, model_->config.training.splits, update_);
    }
    UpdateSize size{.micro_batches = std::ssize(update_)};
    for (const TranslationBatch& batch : update_) {
      size.tokens += batch.source_tokens + batch.target_tokens;
      size.targets += batch.target_weight();
    }
    return size;
  }
  CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) override {
    return loss_of(*model_, update_.at(static_cast<size_t>(i)), options);
  }
  std::vector<std::string> texts(int64_t i) const override {
    return texts_of(update_.at(static_cast<size_t>(i)), model_->tokenizers);
  }
  DataPosition position() const override { return loader_->position(); }
  double uniform_nll() const override {
    return std::log(static_cast<double>(model_->tokenizers.target->vocab_size()));
  }
  std::map<std::string, std::string> files() const override { return model_->files(); }

 protected:
  const RankGroup group_;
  std::unique_ptr<TranslationModel<Model>> model_;
  std::unique_ptr<Loader<Batches>> loader_;

 private:
  std::vector<TranslationBatch> update_;
};

/// TaskOf<Model> for the config's model.
template <template <class> class TaskOf>
std::unique_ptr<TrainingTask> make_task_of_model(const Config& config, TokenizerPair tokenizers,
                                                 const TaskPlace& place, const Report& report) {
  if (config.model_type == ModelType::kRnnAttention) {
    return std::make_unique<TaskOf<RnnAttention>>(config, std::move(tokenizers), place, report);
  }
  return std::make_unique<TaskOf<EncoderDecoder>>(config, std::move(tokenizers), place, report);
}

}  // namespace tapestry
