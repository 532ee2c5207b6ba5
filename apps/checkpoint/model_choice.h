#pragma once

#include <string>
#include <vector>

#include "core/kernels/packed/packed_matrix.h"

namespace tapestry {

/// Models that answer together, by checkpoint or run folder, and the weights of their
/// probabilities (nn/decoding/ensemble.h).
struct ModelChoice {
  std::vector<std::string> paths;
  std::vector<double> weights = {};              ///< none: equal ones
  WeightFormat format = WeightFormat::kFloat32;  ///< of their matrices
};

}  // namespace tapestry
