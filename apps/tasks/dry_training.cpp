#include "apps/tasks/dry_training.h"

#include <algorithm>
#include <cmath>

#include "apps/tasks/training_loss.h"
#include "core/shapes_only.h"
#include "nn/models/r_drop.h"

namespace tapestry {
namespace {

Tensor ids(int64_t rows, int64_t length, Device device) {
  return Tensor::zeros({rows, length}, DType::kInt32).to(device);
}

// Large batches have no values: a batch may be larger than the memory of the host.
Tensor lengths(int64_t rows, int64_t length, Device device) {
  if (!ShapesOnly::has_memory(rows * size_of(DType::kInt32)))
    return ids(rows, 1, device).reshape({rows});
  const std::vector<int32_t> values(static_cast<size_t>(rows), static_cast<int32_t>(length));
  return Tensor::from(values, {rows}).to(device);
}

// A masked model has targets at some places only, and only those reach the classifier. On the host,
// as the loss reads them.
Tensor targets(const BatchSizes& batch, double share) {
  const int64_t bytes = batch.rows * batch.target * size_of(DType::kInt32);
  if (share == 1 || !ShapesOnly::has_memory(bytes)) return ids(batch.rows, batch.target, Device{});
  std::vector<int32_t> values(static_cast<size_t>(batch.rows * batch.target), kNoTarget);
  const double count = std::ceil(share * static_cast<double>(values.size()));
  std::fill_n(values.begin(), static_cast<int64_t>(count), 0);
  return Tensor::from(values, {batch.rows, batch.target});
}

// Of the inputs: R-Drop has two passes.
int64_t rows_of_passes(const BatchSizes& batch, const Config& config) {
  return config.training.r_drop > 0 ? 2 * batch.rows : batch.rows;
}

// logits (passes * B, ..., classes)
CrossEntropy loss_of_logits(const Var& logits, const Tensor& targets, const Config& config,
                            const CrossEntropyOptions& options) {
  const double alpha = config.training.r_drop;
  return alpha > 0 ? r_drop_of_logits(logits, targets, options, alpha)
                   : cross_entropy(logits, targets, options);
}

template <class Model>
CrossEntropy loss_of_pairs(const Model& model, const BatchSizes& batch, const DryRun& run,
                           const CrossEntropyOptions& options) {
  const Config& config = run.config;
  const Device device = parse_device(config.device);
  const double alpha = config.training.r_drop;
  const int64_t rows = rows_of_passes(batch, config);
  EncoderDecoder::Batch pairs{ids(rows, batch.source, device), lengths(rows, batch.source, device),
                              ids(rows, batch.target, device), targets(batch, 1)};
  if (config.model.alignment_layer > 0) {
    pairs.alignment = {Tensor::zeros({batch.rows, batch.target, batch.source}).to(device),
                       Tensor::zeros({rows, 1, batch.source}).to(device),
                       config.training.alignment_weight};
  }
  return alpha > 0 ? r_drop_loss(model, pairs, options, alpha)
                   : training_loss(model, pairs, options, run.teacher);
}

// Two rows for each example.
CrossEntropy loss_of_answers(const LanguageModel& model, const LanguageModel::Batch& rows,
                             const PreferenceOptions& preference,
                             const CrossEntropyOptions& options) {
  const Shape& shape = rows.ids.shape();
  const Var found = model.log_probabilities(rows);
  ComparedAnswers answers{found, std::vector<int64_t>(static_cast<size_t>(shape[0]), shape[1])};
  if (preference.has_reference()) answers.reference = Tensor::empty_like(found.value());
  return preference_loss(answers, preference, options.normalizer);
}

}  // namespace

std::vector<BatchSizes> batches_of(const Config& config) {
  const int64_t size = config.batch.batch_size;
  if (!examples_of(config).of_text()) return {{.rows = size}};
  const int64_t longest =
      examples_of(config).joined ? config.data.block_size : config.data.corpus.max_length;
  const bool by_tokens = config.batch.batch_type == "tokens";
  const int64_t rows = by_tokens ? std::max<int64_t>(1, size / longest) : size;
  std::vector<BatchSizes> batches = {{.rows = rows, .source = longest, .target = longest}};
  if (examples_of(config).joined) return batches;
  // More rows of shorter sentences: a recurrent model's memory per step depends on the rows.
  constexpr int64_t kShortest = 8;
  for (int64_t parts = 2; by_tokens && parts <= kShortest; parts *= 2) {
    const int64_t length = std::max<int64_t>(1, longest / parts);
    batches.push_back({.rows = size / length, .source = length, .target = length});
  }
  // In pairs the longer side fills the batch; in batches of sentences any length may be the
  // longest.
  constexpr double kSmallest = 0.6, kStep = 0.1;
  for (double share = 1 - kStep; share > kSmallest; share -= kStep) {
    const auto less = std::max<int64_t>(
        1, static_cast<int64_t>(std::round(share * static_cast<double>(longest))));
    if (by_tokens) {
      batches.push_back({.rows = rows, .source = longest, .target = less});
      batches.push_back({.rows = rows, .source = less, .target = longest});
    } else {
      batches.push_back({.rows = rows, .source = less, .target = less});
    }
  }
  return batches;
}

CrossEntropy dry_loss(const EncoderDecoder& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options) {
  return loss_of_pairs(model, batch, run, options);
}

CrossEntropy dry_loss(const RnnAttention& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options) {
  return loss_of_pairs(model, batch, run, options);
}

CrossEntropy dry_loss(const LanguageModel& model, const BatchSizes& examples, const DryRun& run,
                      const CrossEntropyOptions& options) {
  const bool masked = !traits_of(run.config.model_type).writes;
  const bool compared = examples_of(run.config).compared;
  BatchSizes batch = examples;
  if (compared) batch.rows *= 2;
  const Device device = parse_device(run.config.device);
  LanguageModel::Batch rows{ids(batch.rows, batch.target, device),
                            targets(batch, masked ? run.config.masking.probability : 1)};
  if (!examples_of(run.config).joined) rows.lengths = lengths(batch.rows, batch.target, device);
  if (compared) return loss_of_answers(model, rows, run.config.preference, options);
  return training_loss(model, rows, options, run.teacher);
}

CrossEntropy dry_loss(const SequenceClassifier& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options) {
  const Device device = parse_device(run.config.device);
  const int64_t rows = rows_of_passes(batch, run.config);
  return loss_of_logits(model(ids(rows, batch.target, device), lengths(rows, batch.target, device)),
                        Tensor::zeros({batch.rows}, DType::kInt32), run.config, options);
}

CrossEntropy dry_loss(const SpanExtractor& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options) {
  const bool two = run.config.model.type_vocab_size > 1;
  const Device device = parse_device(run.config.device);
  return model.loss(ids(batch.rows, batch.target, device),
                    lengths(batch.rows, batch.target, Device{}),
                    two ? ids(batch.rows, batch.target, device) : Tensor(),
                    ids(2, batch.rows, Device{}), options);
}

CrossEntropy dry_loss(const TokenClassifier& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options) {
  const Device device = parse_device(run.config.device);
  const int64_t rows = rows_of_passes(batch, run.config);
  const Var hidden =
      model.hidden(ids(rows, batch.target, device), lengths(rows, batch.target, device));
  if (run.config.training.r_drop == 0) return model.loss(hidden, targets(batch, 1), options);
  return loss_of_logits(model.logits(hidden), targets(batch, 1), run.config, options);
}

CrossEntropy dry_loss(const TextEmbedder& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options) {
  const Device device = parse_device(run.config.device);
  const auto vectors = [&](int64_t length) {
    return model(ids(batch.rows, length, device), lengths(batch.rows, length, Device{}));
  };
  const Var sources = vectors(batch.source), targets = vectors(batch.target);
  const std::vector<CorpusSpec>& train = run.config.data.train;
  if (examples_of(run.config).ranked) {
    return ranking_loss(sources, targets, std::vector<float>(static_cast<size_t>(batch.rows)),
                        run.config.embedding.temperature, options);
  }
  const bool negatives = !train.empty() && !train[0].negative_column.empty();
  const Var choices = negatives ? concat({targets, vectors(batch.target)}, 0) : targets;
  return contrastive_loss(sources, choices, {}, run.config.embedding, options);
}

CrossEntropy dry_loss(const ImageClassifier& model, const BatchSizes& batch, const DryRun& run,
                      const CrossEntropyOptions& options) {
  const ImageSize& size = run.config.data.image.size;
  const Device device = parse_device(run.config.device);
  const Tensor pixels =
      Tensor::zeros({rows_of_passes(batch, run.config), size.height, size.width, size.channels},
                    numbers_of(run.config, ModelUse::kTraining, device).dtype, device);
  return loss_of_logits(model(pixels), Tensor::zeros({batch.rows}, DType::kInt32), run.config,
                        options);
}

}  // namespace tapestry
