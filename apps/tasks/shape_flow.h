// The shapes that go through a model, as a dry run on a small made-up batch meets them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "autograd/trace.h"

namespace tapestry {

/// Sizes of the batch. No size of the model equals one of them, so each number names its axis.
struct DryBatch {
  int64_t rows = 0, source = 0, target = 0;  ///< B, S, T
};

/// A call of a part of a model: a layer with parameters, or a group of such parts.
struct PartCall {
  std::string part;           ///< "encoder.layers.0-2.feed_forward": the same in three layers
  std::vector<Shape> inputs;  ///< of a lookup in a table, the shape of the indices
  Shape output;
  int64_t times = 1;  ///< in each layer
};

/// Each call once, in the order of the calls, a part before its own parts. Parts come from the
/// names of the parameters; operations without parameters belong to the parts around them.
std::vector<PartCall> part_calls(const ParamStore& store, const OperationTrace& trace,
                                 const DryBatch& batch);

/// The sizes of a batch for a model with these parameters.
DryBatch dry_batch(const ParamStore& store, const ModelOptions& options);

/// Lines "part  (B, S, 256) -> (B, S, 1024)", with letters for the sizes of the batch.
std::string lines_of(const std::vector<PartCall>& calls, const DryBatch& batch);

/// The forward pass on a batch, to the logits.
void dry_run(const EncoderDecoder& model, const DryBatch& batch, const Config& config);
void dry_run(const RnnAttention& model, const DryBatch& batch, const Config& config);
void dry_run(const LanguageModel& model, const DryBatch& batch, const Config& config);
void dry_run(const SequenceClassifier& model, const DryBatch& batch, const Config& config);
void dry_run(const SpanExtractor& model, const DryBatch& batch, const Config& config);
void dry_run(const TokenClassifier& model, const DryBatch& batch, const Config& config);
void dry_run(const TextEmbedder& model, const DryBatch& batch, const Config& config);
void dry_run(const ImageClassifier& model, const DryBatch& batch, const Config& config);

/// ModelRow::shapes of a Model.
template <class Model>
std::string shape_flow(const Config& given, const TokenizerPair& tokenizers) {
  Config config = given;
  config.model.recompute = false;  // or the tape would see whole layers
  const ModelBundle<Model> bundle(config, tokenizers);
  const DryBatch batch = dry_batch(bundle.store, config.model);
  OperationTrace trace;
  const Tape tape;
  dry_run(bundle.model, batch, config);
  return lines_of(part_calls(bundle.store, trace, batch), batch);
}

}  // namespace tapestry
