// What the trainer trains, and the options of the `training` section.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/safetensors.h"
#include "autograd/ops.h"
#include "data/batching.h"
#include "nn/parameters.h"

namespace tapestry {

/// What one update learns from: some micro-batches, taken from the data in one go.
struct UpdateSize {
  int64_t micro_batches = 0;
  int64_t source_tokens = 0;
  int64_t target_tokens = 0;  ///< real ones, without padding: what the loss is divided by
};

/// One kind of training (translation, language modelling, ...) as the trainer sees it.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  virtual ParamStore& parameters() = 0;
  /// Takes the next micro-batches from the data.
  virtual UpdateSize next_update(int64_t micro_batches) = 0;
  /// The loss of micro-batch `i` of the current update.
  virtual CrossEntropy loss(int64_t i, const CrossEntropyOptions& options) = 0;
  /// Where the data stands: a task built with this position continues with the same batches.
  virtual DataPosition position() const = 0;
  /// Metrics of the validation set by name: loss, nll, ppl, and bleu, chrf where they apply.
  virtual std::map<std::string, double> validate(const CrossEntropyOptions& options) = 0;
  /// Files that a checkpoint needs besides the tensors: config.json, tokenizers.
  virtual std::map<std::string, std::string> files() const = 0;
};

/// Copies tensors into the parameters of the same name. Throws Error(kData), naming `file`, unless
/// names and shapes agree exactly.
void load_parameters(const ParamStore& store, const NamedTensors& tensors, const std::string& file);

/// True for metrics that are better when they are larger (bleu, chrf, accuracy).
bool larger_is_better(const std::string& metric);

}  // namespace tapestry
