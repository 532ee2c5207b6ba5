// Measures a training on its validation and test sets, and draws the consequences.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "apps/run/trainer/updater.h"

namespace tapestry {

/// With several ranks, all of them call each of its functions. Keeps the best metric, the patience
/// and the plateau of the state.
class Validator {
 public:
  Validator(Training& training, const Updater& updater) : training_(training), updater_(updater) {}

  struct Outcome {
    bool finite = true;  ///< the loss; if the task has none, the metric
    bool best = false;   ///< the metric is the best so far
  };
  /// Measures the weights of the last update, which is finished. Nothing without a validation set,
  /// or if a signal ended it: then state.owes_validation.
  std::optional<Outcome> validate();
  /// True if early_stopping_patience ends the run.
  bool patience_is_over() const;
  /// Measures the test set with the best checkpoint, if this was not done at this update before.
  /// The model then holds that checkpoint's parameters: training is over.
  void measure_test();

 private:
  std::map<std::string, double> measure(HeldOut set, ValidationDetails* details = nullptr);
  /// The metric that the key names.
  double metric(const std::map<std::string, double>& metrics, const char* key,
                const std::string& name) const;
  /// True if the value is the best so far.
  bool keep_best(double value);
  /// Lowers the rate if the validation demands it.
  void watch_plateau(const std::map<std::string, double>& metrics);

  Training& training_;
  const Updater& updater_;
};

}  // namespace tapestry
