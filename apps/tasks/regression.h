// Nadaraya-Watson regression: the training points stay part of the model.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/config/config.h"
#include "autograd/ops.h"
#include "data/examples/points.h"
#include "nn/attention/attention_pooling.h"

namespace tapestry {

/// The mean of the squared errors: predicted and truth (N, ...), of one type and device. Without
/// likelihood and counts: those sums are 0.
CrossEntropy squared_error(const Var& predicted, const Tensor& truth,
                           const CrossEntropyOptions& options);

/// Not movable: the model refers to its store.
struct RegressionModel {
  RegressionModel(const Config& config, Points points, ModelUse use);
  /// Loads the result of read_model_files(). Throws Error(kData), beginning with `who`, for a model
  /// of another task.
  static std::unique_ptr<RegressionModel> load(ModelFiles files, const std::string& device,
                                               const std::string& who);

  /// Predictions at each x, `features` numbers: f (N), or the share of each class (N, C). With
  /// `weights`, also the weight of each point: (N, M).
  std::vector<double> predict(const std::vector<double>& x, Tensor* weights = nullptr) const;
  double width() const;
  /// config.json and the points.
  std::map<std::string, std::string> files() const;

  /// Rows of `columns` numbers of the model's type, on its device.
  Tensor rows(const std::vector<double>& values, int64_t columns) const;
  /// Targets for y: the numbers themselves (N, 1), or 1 at the class of each (N, C).
  Tensor targets(const std::vector<double>& y) const;
  int64_t outputs() const { return std::max<int64_t>(1, std::ssize(points.classes)); }

  Config config;
  Points points;
  ParamStore store;
  AttentionPooling pooling;
  Tensor keys, values;  ///< (M, features) and (M, outputs): x and y of the points
};

}  // namespace tapestry
