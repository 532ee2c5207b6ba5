// Correlation of predicted numbers with true ones.
#pragma once

#include <vector>

namespace tapestry {

/// Pearson's: the covariance over both deviations, from -1 to 1; NaN if one of the lists is
/// constant or has fewer than two numbers. Throws Error(kRuntime) for lists of unequal length.
double pearson_correlation(const std::vector<double>& a, const std::vector<double>& b);
/// Spearman's: that of the ranks; equal numbers share the mean of their ranks.
double spearman_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tapestry
