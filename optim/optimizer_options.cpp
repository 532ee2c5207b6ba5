#include <cmath>

#include "optim/optimizer.h"

namespace tapestry {
void validate(const OptimizerOptions& options, const OptionReport& report) {
  const auto not_negative = [&](const char* member, double value) {
    report.expect(std::isfinite(value) && value >= 0, member, "must be 0 or more, got ", value,
                  '.');
  };
  const auto fraction = [&](const char* member, double value) {
    report.expect(value >= 0 && value < 1, member, "must be in [0, 1), got ", value, '.');
  };
  not_negative("weight_decay", options.weight_decay);
  fraction("momentum", options.momentum);
  fraction("alpha", options.alpha);
  fraction("rho", options.rho);
  for (const double beta : options.betas) fraction("betas", beta);
  not_negative("eps", options.eps);
  const bool may_round = reads_of(options.type).state_dtype;
  report.expect(options.state_dtype == StateType::kFloat32 || may_round, "state_dtype",
                "must be float32 with ", name_of(options.type), ", got ",
                name_of(options.state_dtype), '.');
  if (options.type == OptimizerType::kMuon) options.muon.validate(report);
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
