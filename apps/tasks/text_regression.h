// A number for each text by a trained model: a rating, a similarity.
#pragma once

#include <vector>

#include "apps/checkpoint/model_bundle.h"

namespace tapestry {

/// The numbers of texts, the results of classifier_input(), as one batch.
std::vector<double> rate_texts(const TextClassifier& model,
                               const std::vector<std::vector<int32_t>>& texts);

}  // namespace tapestry
