#include "optim/optimizer_rules.h"

#include <cmath>

namespace tapestry {
namespace {

using Options = OptimizerOptions;

OptimizerStep sgd(const Options&, double lr, double decay, double) { return SgdStep{lr, decay}; }

OptimizerStep momentum(const Options& o, double lr, double decay, double) {
  return MomentumStep{lr, decay, o.momentum, o.type == OptimizerType::kNesterov};
}

OptimizerStep adagrad(const Options& o, double lr, double decay, double) {
  return AdagradStep{lr, decay, o.eps};
}

OptimizerStep rmsprop(const Options& o, double lr, double decay, double) {
  return RmspropStep{lr, decay, o.alpha, o.eps};
}

OptimizerStep adadelta(const Options& o, double lr, double decay, double) {
  return AdadeltaStep{lr, decay, o.rho, o.eps};
}

OptimizerStep adam(const Options& o, double lr, double decay, double t) {
  return AdamStep{.learning_rate = lr,
                  .weight_decay = decay,
                  .beta1 = o.betas[0],
                  .beta2 = o.betas[1],
                  .eps = o.eps,
                  .decoupled = o.type != OptimizerType::kAdam,  // adamw, and beside muon
                  .bias_correction1 = 1 - std::pow(o.betas[0], t),
                  .bias_correction2 = 1 - std::pow(o.betas[1], t)};
}

// The part that has a state; optim/muon.h has the rest.
OptimizerStep muon(const Options& o, double, double, double) {
  return MuonMomentumStep{o.momentum, o.muon.nesterov};
}

}  // namespace

OptimizerRule rule_of(OptimizerType type) {
  switch (type) {
    case OptimizerType::kSgd:
      return {.step = sgd};
    case OptimizerType::kMomentum:
    case OptimizerType::kNesterov:
      return {.step = momentum, .reads = {.momentum = true, .state_dtype = true}};
    case OptimizerType::kAdagrad:
      return {.step = adagrad, .reads = {.eps = true, .state_dtype = true}, .learning_rate = 1e-2};
    case OptimizerType::kRmsprop:
      return {.step = rmsprop, .reads = {.alpha = true, .eps = true, .state_dtype = true}};
    case OptimizerType::kAdadelta:
      return {.step = adadelta,
              .reads = {.rho = true, .eps = true, .state_dtype = true},
              .defaults = {.eps = 1e-6},
              .learning_rate = 1};
    case OptimizerType::kAdam:
      return {.step = adam,
              .reads = {.betas = true, .eps = true, .state_dtype = true},
              .reads_t = true};
    case OptimizerType::kAdamW:
      return {.step = adam,
              .reads = {.betas = true, .eps = true, .state_dtype = true},
              .defaults = {.weight_decay = 1e-2},
              .reads_t = true};
    case OptimizerType::kMuon:
      return {.step = muon,
              .reads = {.momentum = true, .betas = true, .eps = true, .muon = true},
              .defaults = {.weight_decay = 0.1, .momentum = 0.95},
              .learning_rate = 0.02};
  }
  fail(ErrorKind::kRuntime, "[optimizer] no such type: ", static_cast<int>(type), '.');
}

OptimizerOptions optimizer_defaults(OptimizerType type) {
  OptimizerOptions options = rule_of(type).defaults;
  options.type = type;
  return options;
}

bool counts_updates(const OptimizerOptions& options) {
  return options.state_dtype != StateType::kFloat32 ||
         rule_of(elementwise_type(options.type)).reads_t;
}

int64_t state_bytes(const OptimizerOptions& options, int64_t numbers, DType dtype) {
  if (options.state_dtype == StateType::kBFloat16) return numbers * size_of(DType::kBFloat16);
  if (options.state_dtype == StateType::kFloat32) return numbers * size_of(wider(dtype));
  return numbers + state_blocks(numbers) * size_of(DType::kFloat32);
}

// The numbers of a step change neither names nor shapes.
std::vector<StateTensor> state_of(const OptimizerOptions& options, const Shape& param, DType dtype,
                                  bool orthogonalized) {
  const OptimizerType type = orthogonalized ? options.type : elementwise_type(options.type);
  const DType wide = wider(dtype);
  const bool rounded = options.state_dtype == StateType::kBFloat16;
  std::vector<StateTensor> state;
  for (const char* kind : state_names(rule_of(type).step(options, 0, 0, 1))) {
    if (options.state_dtype == StateType::kFloat8) {
      const int64_t blocks = state_blocks(param.numel());
      state.push_back({kind, {blocks, kStateBlock / 4}, DType::kInt32});
      state.push_back({concat(kind, "_scale"), {blocks}, DType::kFloat32});
    } else {
      state.push_back({kind, param, rounded ? DType::kBFloat16 : wide});
    }
  }
  if (orthogonalized && options.muon.scales_rows()) {
    state.push_back({MuonRowsStep::kStates[0], {param[0]}, wide});
  }
  return state;
}

OptimizerType elementwise_type(OptimizerType type) {
  return type == OptimizerType::kMuon ? OptimizerType::kAdamW : type;
}

double default_learning_rate(OptimizerType type) { return rule_of(type).learning_rate; }

OptimizerReads reads_of(OptimizerType type) { return rule_of(type).reads; }

int64_t states_of(OptimizerType type) {
  return std::ssize(state_names(rule_of(type).step(optimizer_defaults(type), 0, 0, 1)));
}

}  // namespace tapestry
