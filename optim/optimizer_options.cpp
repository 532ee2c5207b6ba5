#include "optim/optimizer.h"

namespace tapestry {
namespace {

// In the order of OptimizerType.
constexpr const char* kNames[] = {"sgd",     "momentum", "nesterov", "adagrad",
                                  "rmsprop", "adadelta", "adam",     "adamw"};

}  // namespace

const char* name_of(OptimizerType type) { return kNames[static_cast<int>(type)]; }

OptimizerOptions optimizer_defaults(OptimizerType type) {
  OptimizerOptions options;
  options.type = type;
  if (type == OptimizerType::kAdamW) options.weight_decay = 1e-2;
  if (type == OptimizerType::kAdagrad) options.eps = 1e-10;
  if (type == OptimizerType::kAdadelta) options.eps = 1e-6;
  return options;
}

double default_learning_rate(OptimizerType type) {
  switch (type) {
    case OptimizerType::kAdadelta:
      return 1;
    case OptimizerType::kAdagrad:
    case OptimizerType::kRmsprop:
      return 1e-2;
    default:
      return 1e-3;
  }
}

std::vector<ParamGroup> weight_decay_groups(
    const NamedVars& params,
    const std::function<bool(const std::string& name, const Var& var)>& decays) {
  std::vector<ParamGroup> groups(2);
  groups[1].weight_decay = 0;
  for (const auto& [name, var] : params) {
    if (!var.needs_grad()) continue;
    const bool decay = decays ? decays(name, var) : var.shape().rank() >= 2;
    groups[decay ? 0 : 1].params.emplace_back(name, var);
  }
  return groups;
}

}  // namespace tapestry
