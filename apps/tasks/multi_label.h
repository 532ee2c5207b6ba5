// Any number of classes for each text by a trained model.
#pragma once

#include <vector>

#include "apps/tasks/classification.h"

namespace tapestry {

/// The probability of each class by itself, in the order of config.data.labels, for the results of
/// classifier_input() as one batch.
std::vector<ClassProbabilities> class_probabilities(const TextClassifier& model,
                                                    const std::vector<std::vector<int32_t>>& texts);

}  // namespace tapestry
