// A task's model and the loss of a batch as large as its config allows, without any data: the basis
// of a memory plan.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/teacher.h"
#include "autograd/ops.h"

namespace tapestry {

/// Sizes of a batch: B, and the tokens of a row of each side (of its only side: target); 0 of an
/// image.
struct BatchSizes {
  int64_t rows = 0, source = 0, target = 0;
};
/// First the largest batch, by batch_type, batch_size and the longest example; then others that
/// occur if lengths differ. The allocator keeps the memory of each.
std::vector<BatchSizes> batches_of(const Config& config);

struct DryTraining {
  std::shared_ptr<const ParamStore> store;
  /// Its inputs are where the model's tensors are in a training, on the GPU or the host.
  std::function<CrossEntropy(const BatchSizes& batch, const CrossEntropyOptions& options)> loss;
  int64_t teacher_bytes = 0;  ///< of the weights of training.teacher
};

/// The config of a dry training, and its teacher if it has one.
struct DryRun {
  const Config& config;
  const Teacher* teacher = nullptr;
};

CrossEntropy dry_loss(const EncoderDecoder& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const RnnAttention& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const LanguageModel& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const SequenceClassifier& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const SpanExtractor& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const TokenClassifier& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const TextEmbedder& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);
CrossEntropy dry_loss(const ImageClassifier& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options);

/// ModelRow::dry of a Model.
template <class Model>
DryTraining dry_training(const Config& config, const TokenizerPair& tokenizers) {
  const auto bundle = std::make_shared<ModelBundle<Model>>(config, tokenizers, ModelUse::kTraining);
  const std::shared_ptr<const Teacher> teacher =
      teacher_of(config, tokenizers, Teacher::Weights::kSizesOnly);
  return {.store = {bundle, &bundle->store},
          .loss =
              [bundle, teacher](const BatchSizes& batch, const CrossEntropyOptions& options) {
                return dry_loss(bundle->model, batch, {bundle->config, teacher.get()}, options);
              },
          .teacher_bytes = teacher ? teacher->bytes() : 0};
}

}  // namespace tapestry
