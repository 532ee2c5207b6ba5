// Vectors of texts by a trained model, and how well they find the texts that belong together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// The vectors of the results of encoder_input(), none of them empty, as one batch: (N, D) float32
/// or wider, in host memory.
Tensor embed(const EmbeddingModel& model, const std::vector<FramedText>& texts);

}  // namespace tapestry
