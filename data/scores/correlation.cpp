#include "data/scores/correlation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/error.h"

namespace tapestry {
namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = static_cast<double>(begin + end + 1) / 2;
    if (end == begin) ++end;  // not a number
    for (; begin < end; ++begin) ranks[order[begin]] = rank;
  }
  return ranks;
}

}  // namespace

double pearson_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size(), "correlation", "expected two lists of one length, got ", a.size(),
        " and ", b.size(), '.');
  if (a.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double both = 0, own_a = 0, own_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    both += x * y;
    own_a += x * x;
    own_b += y * y;
  }
  return both / std::sqrt(own_a * own_b);
}

double spearman_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (std::ranges::any_of(a, is_nan) || std::ranges::any_of(b, is_nan)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return pearson_correlation(ranks_of(a), ranks_of(b));
}

}  // namespace tapestry
