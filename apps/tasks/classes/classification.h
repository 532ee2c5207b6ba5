// Classes of texts and images, and numbers of texts, by a trained model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// The probability of each class, in the order of config.data.labels.
using ClassProbabilities = std::vector<double>;

/// The outputs of the head (N, classes) for the results of encoder_input(), as one batch.
Var outputs_of(const TextClassifier& model, const std::vector<std::vector<int32_t>>& texts);

/// Classifies the results of encoder_input() as one batch.
std::vector<ClassProbabilities> classify(const TextClassifier& model,
                                         const std::vector<std::vector<int32_t>>& texts);

/// By a model of multi_label: the probability of each class by itself.
std::vector<ClassProbabilities> class_probabilities(const TextClassifier& model,
                                                    const std::vector<std::vector<int32_t>>& texts);

/// By a model of text_regression: a number for each text, the results of encoder_input() as one
/// batch.
std::vector<double> rate_texts(const TextClassifier& model,
                               const std::vector<std::vector<int32_t>>& texts);

/// Classifies the image in a file. Throws as read_image().
ClassProbabilities classify(const ImageModel& model, const std::string& path);

}  // namespace tapestry
