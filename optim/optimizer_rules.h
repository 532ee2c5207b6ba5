// Each optimizer's facts beyond its name. The update itself is a step of core/kernels/optimizer.h.
#pragma once

#include "core/kernels/optimizer.h"
#include "optim/optimizer.h"

namespace tapestry {

struct OptimizerRule {
  /// The step of update t = 1, 2, ... of a parameter with this learning rate and weight decay.
  OptimizerStep (*step)(const OptimizerOptions& options, double learning_rate, double weight_decay,
                        double t);
  OptimizerReads reads = {};
  OptimizerOptions defaults = {};  ///< the type left out
  bool reads_t = false;            ///< the step depends on t, which is then part of the state
  double learning_rate = 1e-3;     ///< the default rate
};

OptimizerRule rule_of(OptimizerType type);

/// A tensor that an optimizer keeps of a parameter.
struct StateTensor {
  std::string kind;  ///< "exp_avg"
  Shape shape;
  DType dtype;
};
/// Whether the count of a parameter's updates is part of its state: its step depends on it, or how
/// its state is rounded.
bool counts_updates(const OptimizerOptions& options);
/// All of them, but for that count, of a parameter of this shape and `dtype`. In kFloat8 each has
/// its scales behind it.
std::vector<StateTensor> state_of(const OptimizerOptions& options, const Shape& param, DType dtype,
                                  bool orthogonalized);

/// Makes `sum`, a float64 number on the device of the others, not finite if one of them is not.
void spoil_if_not_finite(std::span<const Tensor> others, const Tensor& sum);

}  // namespace tapestry
