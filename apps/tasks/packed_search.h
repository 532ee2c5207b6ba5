// The weights of a model that a validation searches with.
#pragma once

#include <optional>

#include "apps/config/config.h"
#include "nn/layers/parameters.h"

namespace tapestry {

/// Packs weights for a search between two updates, if all of them learn: gradients and activations
/// take more than the copy does. With adapters and frozen weights it could double the memory of a
/// training.
inline std::optional<PackedScope> packed_for_search(const Config& config, const ParamStore& store) {
  if (config.lora.rank > 0 || !config.training.freeze.empty()) return std::nullopt;
  return std::make_optional<PackedScope>(store);
}

}  // namespace tapestry
