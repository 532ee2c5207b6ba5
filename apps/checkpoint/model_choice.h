#pragma once

#include <string>
#include <vector>

namespace tapestry {

/// Models that answer together, by checkpoint or run folder, and the weights of their
/// probabilities (nn/ensemble.h).
struct ModelChoice {
  std::vector<std::string> paths;
  std::vector<double> weights = {};  ///< none: all the same
};

}  // namespace tapestry
