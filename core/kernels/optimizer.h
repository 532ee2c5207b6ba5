// The update rules of the optimizers: one fused pass over parameters, gradients and state, in
// place. The formulas are in optimizer_functors.h, shared by both backends. All details are
// PyTorch's.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <type_traits>
#include <variant>

#include "core/kernels/common.h"

namespace tapestry {

// The numbers of one step of each rule. `weight_decay` adds weight_decay * p to the gradient (L2),
// except where it is decoupled. kStates names the state tensors that the rule keeps per parameter,
// as PyTorch does; kSigned says whether their numbers may be negative.

struct SgdStep {
  static constexpr std::array<const char*, 0> kStates = {};
  static constexpr std::array<bool, 0> kSigned = {};
  double learning_rate;
  double weight_decay;
};

/// State: velocity.
struct MomentumStep {
  static constexpr std::array kStates = {"momentum_buffer"};
  static constexpr std::array kSigned = {true};
  double learning_rate;
  double weight_decay;
  double momentum;
  bool nesterov;
};

/// State: sum of squared gradients.
struct AdagradStep {
  static constexpr std::array kStates = {"sum"};
  static constexpr std::array kSigned = {false};
  double learning_rate;
  double weight_decay;
  double eps;
};

/// State: moving average of squared gradients.
struct RmspropStep {
  static constexpr std::array kStates = {"square_avg"};
  static constexpr std::array kSigned = {false};
  double learning_rate;
  double weight_decay;
  double alpha;
  double eps;
};

/// State: moving averages of squared gradients and of squared updates.
struct AdadeltaStep {
  static constexpr std::array kStates = {"square_avg", "acc_delta"};
  static constexpr std::array kSigned = {false, false};
  double learning_rate;
  double weight_decay;
  double rho;
  double eps;
};

/// State: moving averages of gradients and of squared gradients. Adam, and AdamW when `decoupled`.
struct AdamStep {
  static constexpr std::array kStates = {"exp_avg", "exp_avg_sq"};
  static constexpr std::array kSigned = {true, false};
  double learning_rate;
  double weight_decay;
  double beta1;
  double beta2;
  double eps;
  bool decoupled;
  double bias_correction1;  ///< 1 - beta1^t at update t = 1, 2, ...
  double bias_correction2;  ///< 1 - beta2^t
};

// The three steps of Muon that go element by element; what lies between them is optim/muon.h's.

/// State: moving average of gradients. The parameter's place receives what is to be made
/// orthogonal, and is not read.
struct MuonMomentumStep {
  static constexpr std::array kStates = {"momentum_buffer"};
  static constexpr std::array kSigned = {true};
  double momentum;
  bool nesterov;
};

/// NorMuon's, of rows: the gradient's place has the mean of the squares of each row of an
/// orthogonal matrix, the parameter's receives the row's factor, and is not read. State: moving
/// average of those means.
struct MuonRowsStep {
  static constexpr std::array kStates = {"row_square_avg"};
  static constexpr std::array kSigned = {false};
  double beta2;
};

/// The gradient's place has an orthogonal matrix.
struct MuonStep {
  static constexpr std::array<const char*, 0> kStates = {};
  static constexpr std::array<bool, 0> kSigned = {};
  double learning_rate;
  double shrink;  ///< of the parameter, by weight decay
  bool cautious;  ///< only where the step, too, goes towards 0
};

/// A step of any rule. This list is the only one: the kernels visit it.
using OptimizerStep = std::variant<SgdStep, MomentumStep, AdagradStep, RmspropStep, AdadeltaStep,
                                   AdamStep, MuonMomentumStep, MuonRowsStep, MuonStep>;

/// The names of the rule's state tensors.
inline std::span<const char* const> state_names(const OptimizerStep& step) {
  return std::visit([](const auto& s) { return std::span<const char* const>(s.kStates); }, step);
}

template <class... Steps>
constexpr size_t most_states(std::type_identity<std::variant<Steps...>>) {
  return std::max({Steps::kStates.size()...});
}
inline constexpr size_t kMostOptimizerStates = most_states(std::type_identity<OptimizerStep>());

/// Elements of a parameter whose states in 8 bits share a scale (optimizer_float8.h).
inline constexpr int64_t kStateBlock = 256;
constexpr int64_t state_blocks(int64_t n) { return (n + kStateBlock - 1) / kStateBlock; }

/// The transform of a gradient element before the rule: clamp(scale * g, -limit, limit).
struct GradientTransform {
  double scale = 1;
  double limit = std::numeric_limits<double>::infinity();
  /// Unless null, the sum of squares of all gradients, in device memory, so that a step does not
  /// wait for it on the host. With norm = |scale| * sqrt(*squared_norm), gradients are multiplied
  /// by scale * norm_clip_factor(norm, max_norm). If the norm is not finite, nothing is updated.
  const double* squared_norm = nullptr;
  double max_norm = 0;  ///< 0: the norm is not clipped
};

/// PyTorch's clip_grad_norm_, its 1e-6 included. max_norm 0 gives 1.
TAPESTRY_HOST_DEVICE inline double norm_clip_factor(double norm, double max_norm) {
  const double factor = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}

/// One parameter tensor in an update. The arrays have n elements and do not overlap.
template <class T>
struct ParameterUpdate {
  OptimizerStep step;
  T* param;
  const T* grad;
  std::array<Wider<T>*, kMostOptimizerStates> state;  ///< as many as the rule has
  int64_t n;
  /// Mixed precision (T = BFloat16): the float32 weights. The rule updates them, and param receives
  /// their rounded values; in bfloat16 small updates would vanish. Null: param itself is updated,
  /// as always for float and double.
  Wider<T>* master = nullptr;
  /// The gradient where it is a sum over ranks, in float32 as such sums are. Then `grad` is null.
  const Wider<T>* wide_grad = nullptr;
  /// The state in bfloat16, in place of `state`, whose pointers are then null; not of double. Each
  /// number is rounded up or down at random, so that a mean of many steps is right: rounded to the
  /// nearest, a moving average whose steps are less than half a unit would stand still. What is
  /// drawn depends on it, the gradient and the update's number, not on where an element lies.
  std::array<BFloat16*, kMostOptimizerStates> rounded_state = {};
  uint32_t number = 0;
  /// The state in 8 bits (optimizer_float8.h), in place of `state`; on a CPU, not of double. A byte
  /// an element, of whole blocks, and a scale a block. What is drawn depends on where an element
  /// lies in the parameter, and on `number`.
  std::array<uint8_t*, kMostOptimizerStates> codes = {};
  std::array<float*, kMostOptimizerStates> scales = {};
};

/// One tensor of an exponential moving average.
template <class T>
struct AverageUpdate {
  Wider<T>* average;
  const T* value;
  int64_t n;
};

namespace kernels {

/// Applies the rule to all tensors in one launch (on a GPU a few launches for hundreds of tensors).
/// All updates are steps of one rule.
template <class T>
void optimizer_step(Cpu, std::span<const ParameterUpdate<T>> updates,
                    const GradientTransform& transform);
template <class T>
void optimizer_step(Cuda, std::span<const ParameterUpdate<T>> updates,
                    const GradientTransform& transform);

/// average = decay * average + (1 - decay) * value, for all tensors in one launch.
template <class T>
void moving_average(Cpu, double decay, std::span<const AverageUpdate<T>> updates);
template <class T>
void moving_average(Cuda, double decay, std::span<const AverageUpdate<T>> updates);

}  // namespace kernels
}  // namespace tapestry
