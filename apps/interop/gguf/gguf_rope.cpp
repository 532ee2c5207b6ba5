#include "apps/interop/gguf/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tapestry::interop {
namespace {

std::vector<float> factors_of(double theta, const RopeScaling& scaling, int64_t size) {
  const RopeFrequencies usual(theta), scaled(theta, scaling);
  std::vector<float> factors;
  for (int64_t i = 0; i < size / 2; ++i) {
    factors.push_back(static_cast<float>(usual(i, size) / scaled(i, size)));
  }
  return factors;
}

}  // namespace

std::vector<float> gguf_rope_factors(const ModelOptions& options) {
  return factors_of(options.rope_theta, options.rope_scaling, options.chosen_head_size());
}

// A frequency w between the two bounds is divided by f, with
//
//     1/f = (1 - s)/F + s,  s = (L w / 2 pi - low) / (high - low):
//
// s is a line in w, which two such frequencies give. Its slope and its place fix L, low and high
// but for one factor of all three.
std::optional<RopeScaling> gguf_rope_scaling(const std::vector<float>& factors, double theta) {
  const auto size = static_cast<int64_t>(2 * factors.size());
  if (factors.empty()) return std::nullopt;
  RopeScaling scaling;
  scaling.type = RopeScalingType::kLlama3;
  scaling.factor = *std::ranges::max_element(factors);
  const RopeFrequencies usual(theta);
  struct Point {
    double w, s;
  };
  std::vector<Point> between;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double f = factors[i];
    if (!(f >= 1)) return std::nullopt;
    if (f == 1 || f == scaling.factor) continue;
    between.push_back({usual(static_cast<int64_t>(i), size),
                       (1 / f - 1 / scaling.factor) / (1 - 1 / scaling.factor)});
  }
  if (between.empty()) return std::nullopt;
  const Point &a = between.front(), &b = between.back();
  // One point: the usual bounds are 1 and 4.
  const bool two = between.size() > 1;
  const double slope = two ? (a.s - b.s) / (a.w - b.w) : (a.s + 1.0 / 3) / a.w;
  const double at_zero = a.s - slope * a.w;
  if (!(slope > 0) || !(at_zero < 0)) return std::nullopt;
  const double high = 1 - 1 / at_zero;  // with low = 1
  const double length = 2 * std::numbers::pi * slope * (high - 1);
  const auto near_whole = [](double x) { return std::abs(x - std::round(x)) <= 1e-4 * x; };
  const auto tidy = [&](double x) { return near_whole(x) && x >= 0.5 ? std::round(x) : x; };
  constexpr double kUsualLength = 8192;
  const double whole = near_whole(length) && length >= 1 ? std::round(length) : kUsualLength;
  const double times = near_whole(length) && length >= 1 ? 1 : kUsualLength / length;
  scaling.low_freq_factor = times;
  scaling.high_freq_factor = times == 1 ? tidy(high) : times * high;
  scaling.original_max_position_embeddings = static_cast<int64_t>(whole);
  const std::vector<float> made = factors_of(theta, scaling, size);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (std::abs(made[i] - factors[i]) > 1e-5f * factors[i]) return std::nullopt;
  }
  return scaling;
}

}  // namespace tapestry::interop
