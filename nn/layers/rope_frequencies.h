// The frequencies of rotary positions, and their stretching for texts longer than those of the
// first training.
#pragma once

#include <cstdint>

#include "core/base/enumerators.h"
#include "core/base/option_report.h"

namespace tapestry {

enum class RopeScalingType { kNone, kLinear, kLlama3 };

/// The name in a config, which is Hugging Face's.
constexpr const char* name_of(RopeScalingType type) {
  switch (type) {
    case RopeScalingType::kNone:
      return "none";
    case RopeScalingType::kLinear:
      return "linear";
    case RopeScalingType::kLlama3:
      return "llama3";
  }
  return nullptr;
}
inline constexpr auto kRopeScalingTypes = enumerators<RopeScalingType>();

/// linear: every frequency is divided by `factor` (Chen et al. 2023). llama3 (Llama 3.1): only long
/// waves are. With L positions of the first training and a wave of l positions: l < L / high stays,
/// l > L / low is divided, and between them s = (L / l - low) / (high - low) mixes the two.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;  ///< L

  void validate(const OptionReport& report = OptionReport::throwing("rope_scaling")) const;
};

/// Frequency i of a head of `size` is theta^(-2i / size), scaled.
struct RopeFrequencies {
  RopeFrequencies(double theta, const RopeScaling& scaling = {}) : theta(theta), scaling(scaling) {}
  double operator()(int64_t i, int64_t size) const;

  double theta;
  RopeScaling scaling;
};

}  // namespace tapestry
