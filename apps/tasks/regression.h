// Nadaraya-Watson regression: what it learns from stays part of the model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "data/points.h"
#include "nn/attention_pooling.h"

namespace tapestry {

/// Not movable: the model refers to its store.
struct RegressionModel {
  RegressionModel(const Config& config, Points points);
  /// From a checkpoint folder or run folder. Throws Error(kData) for a model of another task.
  static std::unique_ptr<RegressionModel> load(const std::string& path, const std::string& device);

  /// What the points say at each x: f (N). With `weights`, also the share of each point: (N, M).
  std::vector<double> predict(const std::vector<double>& x, Tensor* weights = nullptr) const;
  double width() const;
  /// config.json and the points.
  std::map<std::string, std::string> files() const;

  /// Numbers as a column (N, 1) of the model's type, on its device.
  Tensor column(const std::vector<double>& values) const;

  Config config;
  Points points;
  ParamStore store;
  AttentionPooling pooling;
  Tensor keys, values;  ///< (M, 1): x and y of the points
};

}  // namespace tapestry
