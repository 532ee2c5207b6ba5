// Classification of texts with a trained model, and the task that trains one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/model_bundle.h"
#include "apps/training.h"

namespace tapestry {

std::unique_ptr<TrainingTask> make_classification_task(const Config& config,
                                                       TokenizerPair tokenizers, DataPosition start,
                                                       const Report& report);

/// The probability of each class, in the order of config.data.labels, for each text. Texts are
/// token ids without bos and eos; longer ones than the model's positions are an Error(kData).
std::vector<std::vector<double>> classify(const TextClassifier& model,
                                          const std::vector<std::vector<int32_t>>& texts);

}  // namespace tapestry
