// Vectors of texts by a trained model, and how well they find the texts that belong together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/tasks/task.h"

namespace tapestry {

/// The model's input for a text: its ids in their frame; none for an empty text. A text that is
/// longer than data.max_length is cut, with a warning that names the line.
std::vector<int32_t> embedder_input(const EmbeddingModel& model, const std::string& text,
                                    int64_t line);

/// The vectors of the results of embedder_input(), none of them empty, as one batch: (N, D) float32
/// or wider, in host memory.
Tensor embed(const EmbeddingModel& model, const std::vector<std::vector<int32_t>>& texts);

}  // namespace tapestry
