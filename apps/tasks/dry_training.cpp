#include "apps/tasks/dry_training.h"

#include <algorithm>
#include <cmath>

namespace tapestry {
namespace {

Tensor ids(int64_t rows, int64_t length) { return Tensor::zeros({rows, length}, DType::kInt32); }

Tensor lengths(const LargestBatch& batch) {
  const auto length = static_cast<int32_t>(batch.tokens);
  return Tensor::from(std::vector<int32_t>(static_cast<size_t>(batch.rows), length), {batch.rows});
}

// Of a masked model only some places have a target, and only those reach the classifier.
Tensor targets(const LargestBatch& batch, double share) {
  std::vector<int32_t> values(static_cast<size_t>(batch.rows * batch.tokens), kNoTarget);
  const double count = std::ceil(share * static_cast<double>(values.size()));
  std::fill_n(values.begin(), static_cast<int64_t>(count), 0);
  return Tensor::from(values, {batch.rows, batch.tokens});
}

template <class Model>
CrossEntropy loss_of_pairs(const Model& model, const LargestBatch& batch,
                           const CrossEntropyOptions& options) {
  return model.loss({ids(batch.rows, batch.tokens), lengths(batch), ids(batch.rows, batch.tokens),
                     targets(batch, 1)},
                    options);
}

}  // namespace

LargestBatch largest_batch(const Config& config) {
  const int64_t size = config.batch.batch_size;
  if (!reads_text(config)) return {.rows = size};
  const int64_t longest =
      reads_blocks(config) ? config.data.block_size : config.data.corpus.max_length;
  const bool by_tokens = config.batch.batch_type == "tokens";
  return {.rows = by_tokens ? std::max<int64_t>(1, size / longest) : size, .tokens = longest};
}

CrossEntropy dry_loss(const EncoderDecoder& model, const LargestBatch& batch, const Config&,
                      const CrossEntropyOptions& options) {
  return loss_of_pairs(model, batch, options);
}

CrossEntropy dry_loss(const RnnAttention& model, const LargestBatch& batch, const Config&,
                      const CrossEntropyOptions& options) {
  return loss_of_pairs(model, batch, options);
}

CrossEntropy dry_loss(const LanguageModel& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options) {
  const bool masked = config.model_type == ModelType::kEncoder;
  LanguageModel::Batch rows{ids(batch.rows, batch.tokens),
                            targets(batch, masked ? config.masking.probability : 1)};
  if (reads_prompts(config)) rows.lengths = lengths(batch);
  return model.loss(rows, options);
}

CrossEntropy dry_loss(const SequenceClassifier& model, const LargestBatch& batch, const Config&,
                      const CrossEntropyOptions& options) {
  return cross_entropy(model(ids(batch.rows, batch.tokens), lengths(batch)),
                       Tensor::zeros({batch.rows}, DType::kInt32), options);
}

CrossEntropy dry_loss(const SpanExtractor& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options) {
  const bool two = config.model.type_vocab_size > 1;
  return model.loss(ids(batch.rows, batch.tokens), lengths(batch),
                    two ? ids(batch.rows, batch.tokens) : Tensor(), ids(2, batch.rows), options);
}

CrossEntropy dry_loss(const ImageClassifier& model, const LargestBatch& batch, const Config& config,
                      const CrossEntropyOptions& options) {
  const ImageSize& size = config.data.image.size;
  const Tensor pixels = Tensor::zeros({batch.rows, size.height, size.width, size.channels},
                                      tensor_dtype(config, Device{}));
  return cross_entropy(model(pixels), Tensor::zeros({batch.rows}, DType::kInt32), options);
}

}  // namespace tapestry
