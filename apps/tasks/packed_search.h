// The weights of a model that a validation searches with.
#pragma once

#include "apps/config/config.h"
#include "nn/layers/parameters.h"

namespace tapestry {

/// For a search between two updates. Packs weights if all of them learn: gradients and activations
/// take more than the copy does. With adapters and frozen weights it could double the memory of a
/// training.
inline PackedScope packed_for_search(const Config& config, const ParamStore& store) {
  return PackedScope(store, config.lora.rank == 0 && config.training.freeze.empty());
}

}  // namespace tapestry
