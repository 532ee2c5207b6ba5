// Finds the first operation whose output or gradient is not finite.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "autograd/observer.h"

namespace tapestry {

/// While it lives, it looks for the first operation of its thread that computes a value, or on the
/// way back a gradient, with an element that is infinite or not a number. It reads every value, so
/// a pass takes longer, but its bits stay.
class FirstNotFinite : public TapeObserver {
 public:
  struct Finding {
    bool backward = false;   ///< found on the way back
    std::string operation;   ///< "linear"
    int64_t number = 0;      ///< of the operation, in order of its pass; from 0
    std::string parameters;  ///< that it reads: "encoder.layers.0.fc1.weight, ..."; or ""
    Shape shape;             ///< shape of the output, or of the input with that gradient
    int64_t element = 0;     ///< the first one, row-major
    int64_t count = 0;       ///< of elements that are not finite
    std::string of = {};     ///< backward: the parameter whose gradient it is; or ""
    /// True if the operation read such a number itself, from the batch or from a parameter.
    std::string input = {};

    /// "forward, operation 17, linear (encoder.layers.0.fc1.weight): 3 of the 1024 elements ..."
    std::string str() const;
  };

  /// `parameters` give operations their places in the model.
  explicit FirstNotFinite(const NamedVars& parameters);

  const std::optional<Finding>& finding() const { return finding_; }

  void computed(const TapeOperation& operation, std::span<const Var* const> inputs,
                std::span<const Var* const> outputs, bool recorded) override;
  void walked_back(const TapeOperation& operation,
                   std::span<const std::shared_ptr<Gradient>> gradients) override;

 private:
  std::string names_of(std::span<const Var* const> inputs) const;

  std::map<const void*, std::string> names_;               ///< of parameters, by their elements
  std::map<const Gradient*, std::string> gradient_names_;  ///< by their collector
  std::map<int64_t, std::string> parameters_of_;           ///< of operations that were recorded
  std::optional<Finding> finding_;
};

}  // namespace tapestry
