// A figure that is a mean over examples, and how sure it is.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace tapestry {

struct ConfidenceInterval {
  double low, high;
};

/// The quantile of Student's t distribution with n >= 1 degrees of freedom that 2.5 % exceed: its
/// expansion around the normal one (Abramowitz and Stegun 1964, 26.7.5), to 0.3 % for n >= 3.
inline double student_t_975(int64_t n) {
  if (n == 1) return 12.706;
  if (n == 2) return 4.3027;
  const double z = 1.959964, v = static_cast<double>(n);
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z, z9 = z7 * z * z;
  return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v) +
         (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * v * v * v * v);
}

/// A ratio of two sums over independent groups, such as nats and tokens over documents.
class SampledRatio {
 public:
  void add(double numerator, double denominator) {
    groups_.emplace_back(numerator, denominator);
    numerator_ += numerator;
    denominator_ += denominator;
  }
  double value() const { return numerator_ / denominator_; }
  double percent() const { return 100 * numerator_ / denominator_; }

  /// Half the width of its 95 % interval, from the spread of the groups around the ratio (the
  /// ratio estimator; Cochran 1977, 6.3) and Student's t. NaN of fewer than two groups.
  double margin() const {
    const auto n = static_cast<int64_t>(groups_.size());
    if (n < 2) return std::numeric_limits<double>::quiet_NaN();
    double squares = 0;
    for (const auto& [numerator, denominator] : groups_) {
      const double rest = numerator - value() * denominator;
      squares += rest * rest;
    }
    const double variance = squares * static_cast<double>(n) / static_cast<double>(n - 1);
    return student_t_975(n - 1) * std::sqrt(variance) / std::abs(denominator_);
  }
  ConfidenceInterval interval() const { return {value() - margin(), value() + margin()}; }

 private:
  std::vector<std::pair<double, double>> groups_;
  double numerator_ = 0, denominator_ = 0;
};

}  // namespace tapestry
