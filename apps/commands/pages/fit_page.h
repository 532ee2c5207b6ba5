// A regression as one self-contained HTML page: the points, the curve, and each point's weight.
#pragma once

#include <string>
#include <vector>

#include "apps/tasks/regression.h"

namespace tapestry {

/// The curve over the range of the points and of `x`, the answers at `x`, and the shares of the
/// points in the first answers as a map: a row for each x, a column for each point (or group of
/// neighbours) in the order of its place. It loads no other file and runs no script.
std::string fit_page(const RegressionModel& model, const std::vector<double>& x);

}  // namespace tapestry
