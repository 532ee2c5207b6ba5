// Llama 3's scaling of frequencies in GGUF files: a tensor of factors, from which the numbers of
// the scaling can be found again.
#pragma once

#include <optional>
#include <vector>

#include "apps/config/config.h"

namespace tapestry::interop {

/// What each frequency of a head is divided by.
std::vector<float> gguf_rope_factors(const ModelOptions& options);

/// The scaling with these factors, of a model with this rope_theta; unset if no scaling of type
/// llama3 has them. Of the many that have, low_freq_factor is 1 if
/// original_max_position_embeddings is a whole number then.
std::optional<RopeScaling> gguf_rope_scaling(const std::vector<float>& factors, double theta);

}  // namespace tapestry::interop
