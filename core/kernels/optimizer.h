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
  /// Unless null, the sum of squares of all gradients, in the kernel's device memory: so that a
  /// step need not wait for it on the host. With norm = |scale| * sqrt(*squared_norm), gradients
  /// are multiplied with scale * norm_clip_factor(norm, max_norm); when the norm is not finite,
  /// nothing is updated.
  const double* squared_norm = nullptr;
  double max_norm = 0;  ///< 0: the norm is not clipped
};

/// PyTorch's clip_grad_norm_, its 1e-6 included. max_norm 0 gives 1.
TAPESTRY_HOST_DEVICE inline double norm_clip_factor(double norm, double max_norm) {
  const double factor = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}

/// One parameter tensor in an update. The arrays have n elements and do not overlap.
template <class T, class Step>
struct ParameterUpdate {
  Step step;
  T* param;
  const T* grad;
  std::array<Wider<T>*, Step::kStates> state;
  int64_t n;
  /// Mixed precision (T = BFloat16): the float32 weights. The rule updates them, and param becomes
  /// their rounding; small updates would vanish in bfloat16. Null: param itself is updated, as ever
  /// for float and double.
  Wider<T>* master = nullptr;
};

/// One tensor of an exponential moving average.
template <class T>
struct AverageUpdate {
  Wider<T>* average;
  const T* value;
  int64_t n;
};

namespace kernels {

/// Applies the rule to all tensors in one launch (on a GPU a few, for hundreds of tensors). Defined
/// for the six rules above.
template <class T, class Step>
void optimizer_step(Cpu, std::span<const ParameterUpdate<T, Step>> updates,
                    const GradientTransform& transform);
template <class T, class Step>
void optimizer_step(Cuda, std::span<const ParameterUpdate<T, Step>> updates,
                    const GradientTransform& transform);

/// average = decay * average + (1 - decay) * value, for all tensors in one launch.
template <class T>
void moving_average(Cpu, double decay, std::span<const AverageUpdate<T>> updates);
template <class T>
void moving_average(Cuda, double decay, std::span<const AverageUpdate<T>> updates);

}  // namespace kernels
}  // namespace tapestry
