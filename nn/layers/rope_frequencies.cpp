#include "nn/layers/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tapestry {
namespace {

double usual(double theta, int64_t i, int64_t size) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
}

double llama3(const RopeScaling& scaling, double w) {
  // Waves in the length of the first training.
  const double waves =
      static_cast<double>(scaling.original_max_position_embeddings) * w / (2 * std::numbers::pi);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  if (waves > high) return w;
  if (waves < low) return w / scaling.factor;
  const double s = (waves - low) / (high - low);
  return (1 - s) * w / scaling.factor + s * w;
}

double dynamic_theta(const RopeFrequencies& w, int64_t size) {
  const auto first = static_cast<double>(w.scaling.original_max_position_embeddings);
  const double length = std::max(first, static_cast<double>(w.positions));
  const double factor = w.scaling.factor, rotated = static_cast<double>(size);
  // Two numbers are one frequency, which is 1 whatever theta is.
  if (size <= 2) return w.theta;
  return w.theta * std::pow(factor * length / first - (factor - 1), rotated / (rotated - 2));
}

double yarn(const RopeFrequencies& w, int64_t i, int64_t size) {
  const RopeScaling& scaling = w.scaling;
  const auto rotated = static_cast<double>(size);
  // The number, no whole one, of the frequency with so many turns in the first training's length.
  const auto number_of = [&](double turns) {
    const auto length = static_cast<double>(scaling.original_max_position_embeddings);
    return rotated * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(w.theta));
  };
  double low = number_of(scaling.beta_fast), high = number_of(scaling.beta_slow);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rotated - 1);
  if (low == high) high += 0.001;
  const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  const double stays = usual(w.theta, i, size);
  return stays / scaling.factor * divided + stays * (1 - divided);
}

double longrope(const RopeFrequencies& w, int64_t i, int64_t size) {
  const bool is_long = w.positions > w.scaling.original_max_position_embeddings;
  const std::vector<double>& factors = is_long ? w.scaling.long_factor : w.scaling.short_factor;
  return usual(w.theta, i, size) / factors.at(static_cast<size_t>(i));
}

}  // namespace

void RopeScaling::validate(const OptionReport& report) const {
  report.expect(factor > 0, "factor", "must be more than 0, got ", factor, '.');
  if (has_original_length()) {
    report.expect(original_max_position_embeddings >= 1, "original_max_position_embeddings",
                  "must be at least 1, got ", original_max_position_embeddings, '.');
  }
  if (has_attention_factor()) {
    report.expect(attention_factor >= 0, "attention_factor", "must be at least 0, got ",
                  attention_factor, '.');
  }
  if (type == RopeScalingType::kLlama3) {
    report.expect(low_freq_factor > 0, "low_freq_factor", "must be more than 0, got ",
                  low_freq_factor, '.');
    report.expect(high_freq_factor > low_freq_factor, "high_freq_factor",
                  "must be more than low_freq_factor, got ", high_freq_factor, " and ",
                  low_freq_factor, '.');
  }
  if (type == RopeScalingType::kYarn) {
    report.expect(beta_slow > 0, "beta_slow", "must be more than 0, got ", beta_slow, '.');
    report.expect(beta_fast >= beta_slow, "beta_fast", "must be at least beta_slow, got ",
                  beta_fast, " and ", beta_slow, '.');
  }
  if (type == RopeScalingType::kDynamic) {
    report.expect(factor >= 1, "factor", "must be at least 1 of dynamic, got ", factor, '.');
  }
  if (type != RopeScalingType::kLongrope) return;
  report.expect(original_max_position_embeddings >= 2, "original_max_position_embeddings",
                "must be at least 2 of longrope, got ", original_max_position_embeddings, '.');
  for (const auto& [name, factors] :
       {std::pair{"short_factor", &short_factor}, std::pair{"long_factor", &long_factor}}) {
    report.expect(std::ranges::all_of(*factors, [](double f) { return f > 0; }), name,
                  "must have numbers above 0 only.");
  }
}

double RopeFrequencies::operator()(int64_t i, int64_t size) const {
  switch (scaling.type) {
    case RopeScalingType::kNone:
      break;
    case RopeScalingType::kLinear:
      return usual(theta, i, size) / scaling.factor;
    case RopeScalingType::kLlama3:
      return llama3(scaling, usual(theta, i, size));
    case RopeScalingType::kDynamic:
      return usual(dynamic_theta(*this, size), i, size);
    case RopeScalingType::kYarn:
      return yarn(*this, i, size);
    case RopeScalingType::kLongrope:
      return longrope(*this, i, size);
  }
  return usual(theta, i, size);
}

double RopeFrequencies::attention_factor() const {
  if (!scaling.has_attention_factor()) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  if (scaling.factor <= 1) return 1;
  const double factor = std::log(scaling.factor);
  if (scaling.type == RopeScalingType::kYarn) return 0.1 * factor + 1;
  return std::sqrt(1 + factor /
                           std::log(static_cast<double>(scaling.original_max_position_embeddings)));
}

}  // namespace tapestry
