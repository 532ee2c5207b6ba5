#include "optim/optimizer.h"

namespace tapestry {
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
