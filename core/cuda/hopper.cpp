#include "core/cuda/hopper.h"

#include <atomic>
#include <optional>

namespace tapestry::cuda {
namespace {

std::atomic<std::optional<HopperAttention>> choice{std::nullopt};

}  // namespace

HopperAttention hopper_attention() {
  std::optional<HopperAttention> chosen = choice;
  if (!chosen) {
    chosen = has_warpgroup_products() ? HopperAttention::kByShape : HopperAttention::kNowhere;
    choice = chosen;
  }
  return *chosen;
}

void choose_hopper_attention(HopperAttention wanted) { choice = wanted; }

}  // namespace tapestry::cuda
