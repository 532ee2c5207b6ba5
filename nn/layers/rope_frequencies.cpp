#include "nn/layers/rope_frequencies.h"

#include <cmath>
#include <numbers>

namespace tapestry {

void RopeScaling::validate(const OptionReport& report) const {
  report.expect(factor > 0, "factor", "must be more than 0, got ", factor, '.');
  if (type != RopeScalingType::kLlama3) return;
  report.expect(low_freq_factor > 0, "low_freq_factor", "must be more than 0, got ",
                low_freq_factor, '.');
  report.expect(high_freq_factor > low_freq_factor, "high_freq_factor",
                "must be more than low_freq_factor, got ", high_freq_factor, " and ",
                low_freq_factor, '.');
  report.expect(original_max_position_embeddings >= 1, "original_max_position_embeddings",
                "must be at least 1, got ", original_max_position_embeddings, '.');
}

double RopeFrequencies::operator()(int64_t i, int64_t size) const {
  const double w = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
  switch (scaling.type) {
    case RopeScalingType::kNone:
      return w;
    case RopeScalingType::kLinear:
      return w / scaling.factor;
    case RopeScalingType::kLlama3:
      break;
  }
  // Waves in the length of the first training.
  const double waves =
      static_cast<double>(scaling.original_max_position_embeddings) * w / (2 * std::numbers::pi);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  if (waves > high) return w;
  if (waves < low) return w / scaling.factor;
  const double s = (waves - low) / (high - low);
  return (1 - s) * w / scaling.factor + s * w;
}

}  // namespace tapestry
