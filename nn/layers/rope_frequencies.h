// The frequencies of rotary positions, and their stretching for texts longer than those of the
// first training.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/enumerators.h"
#include "core/base/option_report.h"

namespace tapestry {

enum class RopeScalingType { kNone, kLinear, kLlama3, kDynamic, kYarn, kLongrope };

/// The name in a config, which is Hugging Face's.
constexpr const char* name_of(RopeScalingType type) {
  switch (type) {
    case RopeScalingType::kNone:
      return "none";
    case RopeScalingType::kLinear:
      return "linear";
    case RopeScalingType::kLlama3:
      return "llama3";
    case RopeScalingType::kDynamic:
      return "dynamic";
    case RopeScalingType::kYarn:
      return "yarn";
    case RopeScalingType::kLongrope:
      return "longrope";
  }
  return nullptr;
}
inline constexpr auto kRopeScalingTypes = enumerators<RopeScalingType>();

/// With L positions of the first training:
/// linear: every frequency is divided by `factor` (Chen et al. 2023).
/// llama3 (Llama 3.1): only long waves are. Of a wave of l positions, l < L / high stays, l > L /
/// low is divided, and between them s = (L / l - low) / (high - low) mixes the two.
/// dynamic: theta grows with the n > L positions that the model has, to theta * (factor n / L -
/// factor + 1)^(R / (R - 2)), R the numbers of a head that are rotated.
/// yarn (Peng et al. 2023): a frequency with more than beta_fast turns in L stays, one with fewer
/// than beta_slow is divided, and between them a line over their numbers mixes the two.
/// longrope (Ding et al. 2024): each frequency has a divisor of its own, among long_factor if the
/// model has more than L positions, else among short_factor.
/// Of the last two, cosines and sines are multiplied by an attention factor.
struct RopeScaling {
  RopeScalingType type = RopeScalingType::kNone;
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;  ///< L
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;  ///< the ends of yarn's line are whole numbers
  /// 0: 0.1 log(factor) + 1 of yarn, sqrt(1 + log(factor) / log(L)) of longrope.
  double attention_factor = 0;
  std::vector<double> short_factor = {}, long_factor = {};  ///< (R / 2) each

  bool has_attention_factor() const {
    return type == RopeScalingType::kYarn || type == RopeScalingType::kLongrope;
  }
  /// Whether L has a meaning.
  bool has_original_length() const {
    return type == RopeScalingType::kLlama3 || type == RopeScalingType::kDynamic ||
           has_attention_factor();
  }
  void validate(const OptionReport& report = OptionReport::throwing("rope_scaling")) const;
};

/// Frequency i of a head of which R = `size` numbers are rotated is theta^(-2i / R), scaled for a
/// model with so many positions.
struct RopeFrequencies {
  RopeFrequencies(double theta, const RopeScaling& scaling = {}, int64_t positions = 0)
      : theta(theta), scaling(scaling), positions(positions) {}
  double operator()(int64_t i, int64_t size) const;
  /// The factor of cosines and sines.
  double attention_factor() const;

  double theta;
  RopeScaling scaling;
  int64_t positions;
};

}  // namespace tapestry
