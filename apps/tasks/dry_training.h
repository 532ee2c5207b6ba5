// A task's model and the loss of a batch as large as its config allows, without any data: what a
// plan of memory is made of.
#pragma once

#include <functional>
#include <memory>

#include "apps/checkpoint/model_bundle.h"
#include "autograd/ops.h"

namespace tapestry {

/// Sizes of the largest batch.
struct LargestBatch {
  int64_t rows = 0, tokens = 0;  ///< B, and the tokens of a row on each side; 0 of an image
};
/// By batch_type, batch_size, and the longest example.
LargestBatch largest_batch(const Config& config);

struct DryTraining {
  std::shared_ptr<const ParamStore> store;
  std::function<CrossEntropy(const CrossEntropyOptions& options)> loss;
};

CrossEntropy dry_loss(const EncoderDecoder& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const RnnAttention& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const LanguageModel& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const SequenceClassifier& model, const LargestBatch& batch,
                      const Config& config, const CrossEntropyOptions& options);
CrossEntropy dry_loss(const SpanExtractor& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const ImageClassifier& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options);

/// Task::dry of a task that trains a Model.
template <class Model>
DryTraining dry_training(const Config& config, const TokenizerPair& tokenizers) {
  const auto bundle = std::make_shared<ModelBundle<Model>>(
      config, tokenizers, training_precision(config, parse_device(config.device)));
  return {.store = {bundle, &bundle->store},
          .loss = [bundle, batch = largest_batch(config)](const CrossEntropyOptions& options) {
            return dry_loss(bundle->model, batch, bundle->config, options);
          }};
}

}  // namespace tapestry
