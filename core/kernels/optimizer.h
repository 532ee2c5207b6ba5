// The update rules of the optimizers: one fused pass over parameters, gradients and state, in
// place. The formulas are in optimizer_functors.h, shared by both backends; PyTorch's in all
// details.
#pragma once

#include <array>
#include <limits>
#include <span>

#include "core/kernels/common.h"

namespace tapestry {

// The numbers of one step of each rule. `weight_decay` adds weight_decay * p to the gradient (L2),
// except where it is decoupled. kStates counts the state tensors that the rule keeps per parameter.

struct SgdStep {
  static constexpr int kStates = 0;
  double learning_rate;
  double weight_decay;
};

/// State: velocity.
struct MomentumStep {
  static constexpr int kStates = 1;
  double learning_rate;
  double weight_decay;
  double momentum;
  bool nesterov;
};

/// State: sum of squared gradients.
struct AdagradStep {
  static constexpr int kStates = 1;
  double learning_rate;
  double weight_decay;
  double eps;
};

/// State: moving average of squared gradients.
struct RmspropStep {
  static constexpr int kStates = 1;
  double learning_rate;
  double weight_decay;
  double alpha;
  double eps;
};

/// State: moving averages of squared gradients and of squared updates.
struct AdadeltaStep {
  static constexpr int kStates = 2;
  double learning_rate;
  double weight_decay;
  double rho;
  double eps;
};

/// State: moving averages of gradients and of squared gradients. Adam, and AdamW when `decoupled`.
struct AdamStep {
  static constexpr int kStates = 2;
  double learning_rate;
  double weight_decay;
  double beta1;
  double beta2;
  double eps;
  bool decoupled;
  double bias_correction1;  ///< 1 - beta1^t at update t = 1, 2, ...
  double bias_correction2;  ///< 1 - beta2^t
};

/// What happens to a gradient element before the rule sees it: clamp(scale * g, -limit, limit).
struct GradientTransform {
  double scale = 1;
  double limit = std::numeric_limits<double>::infinity();
};

/// One parameter tensor in an update. The arrays have n elements and do not overlap.
template <class T, class Step>
struct ParameterUpdate {
  Step step;
  T* param;
  const T* grad;
  std::array<T*, Step::kStates> state;
  int64_t n;
};

/// One tensor of an exponential moving average.
template <class T>
struct AverageUpdate {
  T* average;
  const T* value;
  int64_t n;
};

namespace kernels {

/// Applies the rule to all tensors in one launch. Defined for the six rules above.
template <class T, class Step>
void optimizer_step(Cpu, std::span<const ParameterUpdate<T, Step>> updates,
                    const GradientTransform& transform);

/// average = decay * average + (1 - decay) * value, for all tensors in one launch.
template <class T>
void moving_average(Cpu, double decay, std::span<const AverageUpdate<T>> updates);

}  // namespace kernels
}  // namespace tapestry
