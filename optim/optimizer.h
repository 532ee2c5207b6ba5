// The nine optimizers: one class over the fused kernels of core/kernels/optimizer.h, and over
// optim/muon.h. Trajectories equal PyTorch's.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/enumerators.h"
#include "core/base/option_report.h"
#include "core/host_copy.h"
#include "optim/muon.h"
#include "optim/named.h"

namespace tapestry {

struct GradientTransform;
struct StateTensor;
template <class T>
struct ElementSpan;

enum class OptimizerType {
  kSgd,
  kMomentum,
  kNesterov,
  kAdagrad,
  kRmsprop,
  kAdadelta,
  kAdam,   ///< weight decay as a part of the gradient (L2)
  kAdamW,  ///< weight decay decoupled from the gradient
  kMuon,   ///< of matrices between layers (ParamGroup::orthogonalize); adamw of all else
};

constexpr const char* name_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::kSgd:
      return "sgd";
    case OptimizerType::kMomentum:
      return "momentum";
    case OptimizerType::kNesterov:
      return "nesterov";
    case OptimizerType::kAdagrad:
      return "adagrad";
    case OptimizerType::kRmsprop:
      return "rmsprop";
    case OptimizerType::kAdadelta:
      return "adadelta";
    case OptimizerType::kAdam:
      return "adam";
    case OptimizerType::kAdamW:
      return "adamw";
    case OptimizerType::kMuon:
      return "muon";
  }
  return nullptr;
}

inline constexpr auto kOptimizerTypes = enumerators<OptimizerType>();

/// What the numbers are kept in that a rule has for each element.
enum class StateType {
  kFloat32,
  kBFloat16,  ///< rounded at random (core/kernels/optimizer.h)
  kFloat8,    ///< the same in 8 bits, with scales of blocks (core/kernels/optimizer_float8.h)
};

constexpr const char* name_of(StateType type) {
  switch (type) {
    case StateType::kFloat32:
      return "float32";
    case StateType::kBFloat16:
      return "bfloat16";
    case StateType::kFloat8:
      return "float8";
  }
  return nullptr;
}
inline constexpr auto kStateTypes = enumerators<StateType>();

/// A rule ignores the numbers that it does not read (reads_of). Start from optimizer_defaults() and
/// change members: eps and weight_decay have another default for each rule.
struct OptimizerOptions {
  OptimizerType type = OptimizerType::kAdam;
  double weight_decay = 0;
  double momentum = 0.9;
  double alpha = 0.99;                         ///< decay of the average of squared gradients
  double rho = 0.9;                            ///< decay of both averages of adadelta
  std::array<double, 2> betas = {0.9, 0.999};  ///< decays of the averages of g and of g^2
  double eps = 1e-8;
  StateType state_dtype = StateType::kFloat32;  ///< float64 parameters have float64 states
  MuonOptions muon = {};                        ///< betas and eps are those of the AdamW beside it
};

/// Numbers outside their ranges.
void validate(const OptimizerOptions& options,
              const OptionReport& report = OptionReport::throwing("optimizer"));

/// The usual values: weight_decay 0 (adamw 0.01), eps 1e-8 (adadelta 1e-6), momentum 0.9. PyTorch
/// has the same but for adagrad's eps, 1e-10 there, and momentum, which it has no rule of its own
/// for.
OptimizerOptions optimizer_defaults(OptimizerType type);
/// A rate to begin with: 1e-3; adagrad, whose steps shrink, 1e-2; adadelta, which finds its step by
/// itself, 1 (Zeiler 2012 has no rate); muon 0.02 (Jordan et al. 2024), for what it makes
/// orthogonal and adjust_lr_fn original.
double default_learning_rate(OptimizerType type);
/// The rule of parameters that are not made orthogonal: adamw with muon, else the type itself.
OptimizerType elementwise_type(OptimizerType type);
/// Numbers that a rule keeps for each element of the parameters; muon's, of matrices that it makes
/// orthogonal.
int64_t states_of(OptimizerType type);
/// Bytes of such numbers for parameters of `dtype`, with scales.
int64_t state_bytes(const OptimizerOptions& options, int64_t numbers, DType dtype);

/// The options that a rule reads, besides weight_decay.
struct OptimizerReads {
  bool momentum = false;
  bool alpha = false;
  bool rho = false;
  bool betas = false;
  bool eps = false;
  bool state_dtype = false;
  bool muon = false;
};
OptimizerReads reads_of(OptimizerType type);

/// Parameters that share settings.
struct ParamGroup {
  NamedVars params;
  double learning_rate_scale = 1;
  std::optional<double> weight_decay = {};  ///< unset: the optimizer's
  /// Of muon: they are matrices that it makes orthogonal. What is in other groups gets adamw. No
  /// rank of several has a part of such a matrix.
  bool orthogonalize = false;
  /// Of a parameter that packs several of them, one below the other: their rows.
  std::map<std::string, std::vector<int64_t>> packed_rows = {};
};

/// Two groups: the parameters for which `decays(name, var)` holds, with the optimizer's weight
/// decay, and the others with none. Without a predicate matrices decay; biases and norms (rank < 2)
/// do not. Parameters without gradient, like running statistics, are in neither.
std::vector<ParamGroup> weight_decay_groups(
    const NamedVars& params,
    const std::function<bool(const std::string& name, const Var& var)>& decays = nullptr);

/// 0 switches a limit off. With both, the norm is clipped first.
struct ClipOptions {
  double max_grad_norm =
      0;                  ///< the global L2 norm is scaled down to this (PyTorch's clip_grad_norm_)
  double clip_value = 0;  ///< each element is clamped to [-clip_value, clip_value]
  /// Stands for the norm of the gradients, as that of the update before; 0: nothing to clip.
  std::optional<double> norm = {};

  /// What the gradients are multiplied by, if that is known before them.
  double scale() const;
  /// max_grad_norm of the gradients' own norm.
  double max_own_norm() const { return norm ? 0 : max_grad_norm; }
};

struct StepResult {
  double grad_norm;  ///< global L2 norm before clipping, gradient_scale included
  bool finite;       ///< false: a gradient is not finite, and the update was skipped
  /// Of an update in backward (optim/backward_steps.h) that could not be skipped as a whole: the
  /// parameters that were updated before one whose gradient is not finite, and that one's name.
  int64_t updated_before = 0;
  std::string culprit = {};
};

/// Figures of one parameter's gradient, before clipping.
struct GradientFigures {
  std::string name;
  double squares = 0;  ///< the sum of them, of the gradient as it is (gradient_scale 1)
  int64_t zeros = 0;
  int64_t elements = 0;  ///< 0 if no gradient reached it
};

class Optimizer {
 public:
  /// Allocates the state of all parameters. Throws Error(kConfig) on impossible options and like
  /// check_parameters().
  Optimizer(const OptimizerOptions& options, const std::vector<ParamGroup>& groups);
  /// Of muon: with every matrix made orthogonal.
  Optimizer(const OptimizerOptions& options, const NamedVars& params);

  /// One update of every parameter that has a gradient; frozen ones and those that no gradient
  /// reached stay as they are, state included. The gradients count as multiplied by gradient_scale
  /// (1 / tokens, for example, when sums were accumulated) and are not changed. When one of them is
  /// not finite, nothing changes and the result says so.
  StepResult step(double learning_rate, const ClipOptions& clip = {}, double gradient_scale = 1) {
    launch(learning_rate, clip, gradient_scale);
    return outcome();
  }

  // The two halves of step(): on a GPU more work can be given to it between them.

  /// Does not wait for a GPU. Numbers in `also_finite` (float64, on the parameters' device), such
  /// as losses, are checked for being finite together with the gradients. `squares`, a float64
  /// number there, is the sum of the squares of all gradients, if it is already known or if this
  /// optimizer has only a part of the gradients.
  void launch(double learning_rate, const ClipOptions& clip = {}, double gradient_scale = 1,
              std::span<const Tensor> also_finite = {}, const Tensor& squares = {});
  /// The result of the last launch. Call nothing else of the optimizer between the two.
  StepResult outcome();

  void zero_grad() const;

  /// From now on each launch counts figures of the gradients, in the pass that sums their squares
  /// (if that was done elsewhere, in a pass of its own). Only on a CPU; otherwise it does nothing.
  void count_figures();
  /// Figures of the last launch, parameter by parameter; empty if none are counted.
  const std::vector<GradientFigures>& figures() const { return figures_; }

  /// The state for checkpoints, sharing storage with this object: "exp_avg/<parameter>" and so on,
  /// named as in PyTorch; "step/<parameter>" counts Adam's applied updates. In kFloat8 a tensor has
  /// four numbers in an int32, block by block, and "exp_avg_scale/<parameter>" their scales.
  NamedTensors state() const;
  /// Overwrites the state. Throws, and changes nothing, when names, shapes or dtypes differ.
  void load_state(const NamedTensors& state);

  /// Mixed precision: the float32 weights whose roundings bfloat16 parameters are, by parameter
  /// name, sharing storage. Empty for parameters of other dtypes.
  NamedTensors masters() const;

  const OptimizerOptions& options() const { return options_; }

  /// Floating-point operations of the matrix products of an update, 2 a multiply-add.
  double product_flops() const;

 private:
  friend class BackwardSteps;

  // A parameter with its settings and state.
  struct Slot {
    std::string name;
    Var var;
    double learning_rate_scale;
    double weight_decay;
    std::vector<int64_t> rows;  // of each matrix that is made orthogonal; empty: none is
    std::vector<Tensor> state;  // as many as state_of()
    Tensor step;                // one int32; where the rule or a rounding reads it
    Tensor master;              // of a bfloat16 parameter
  };

  // A launch whose outcome has not been read.
  struct Launched {
    HostCopy squared_norm;
    double gradient_scale;
    std::vector<const Slot*> updated;  // whose counts go back if it is skipped
    int64_t updated_before = 0;        // as in StepResult
    std::string culprit = {};
  };

  std::vector<StateTensor> kinds_of(const Slot& slot) const;
  // Throws if an update cannot begin with this rate.
  void expect_launch(double learning_rate) const;
  // The sum of squares of the gradients, on their device.
  Tensor sum_of_squares();
  template <class T>
  void sum_and_count(const std::vector<ElementSpan<T>>& gradients, double* sum);
  // Updates those of the slots that have a gradient. Returns them.
  std::vector<const Slot*> update(std::span<const Slot> slots, double learning_rate,
                                  const GradientTransform& transform) const;
  void update_matrices(std::span<const Slot> slots, double learning_rate,
                       const GradientTransform& transform, std::vector<const Slot*>& updated) const;

  OptimizerOptions options_;
  std::vector<Slot> slots_;
  std::optional<Launched> launched_;
  std::vector<GradientFigures> figures_;
};

}  // namespace tapestry
