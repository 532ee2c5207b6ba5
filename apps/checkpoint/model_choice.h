#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/kernels/packed/packed_matrix.h"

namespace tapestry {

/// The format of the matrices of a model that answers.
struct WeightChoice {
  WeightChoice() = default;
  WeightChoice(WeightFormat format) : format(format) {}  // NOLINT: one of the two

  /// None: the one that the model learnt for (training.quantize) where it can be packed, else
  /// float32.
  std::optional<WeightFormat> format = {};
};

/// Models that answer together, by checkpoint or run folder, and the weights of their
/// probabilities (nn/decoding/ensemble.h).
struct ModelChoice {
  std::vector<std::string> paths;
  std::vector<double> weights = {};  ///< none: equal ones
  WeightChoice format = {};
};

}  // namespace tapestry
