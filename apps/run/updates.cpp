#include "apps/run/updates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/pattern.h"

namespace tapestry {

NamedVars trained_parameters(const NamedVars& params, const Config& config) {
  const auto expect_names = [&](const char* key, const std::vector<std::string>& patterns,
                                const auto& name_of) {
    for (const std::string& pattern : patterns) {
      const bool found = std::any_of(params.begin(), params.end(), [&](const auto& entry) {
        return matches(name_of(entry.first), pattern);
      });
      if (found) continue;
      fail(ErrorKind::kConfig, "[train] training.", key, ": no parameter's name matches '", pattern,
           "'; tapestry inspect lists them.");
    }
  };
  const auto whole = [](const std::string& name) { return name; };
  expect_names("freeze", config.training.freeze, whole);
  if (config.lora.rank > 0) {
    expect_names("lora.modules_to_save", config.training.modules_to_save, whole);
    // Of a parameter of an adapter the layer; of another one nothing that a target names.
    expect_names("lora.target", config.lora.target, [](const std::string& name) {
      return is_adapter(name) ? name.substr(0, name.rfind('.')) : "";
    });
  }
  NamedVars trained;
  for (const auto& [name, var] : params) {
    if (learns(config, name)) {
      trained.emplace_back(name, var);
    } else {
      var.set_requires_grad(false);
    }
  }
  if (trained.empty() && !params.empty()) {
    fail(ErrorKind::kConfig, "[train] training.freeze leaves no parameter to train.");
  }
  return trained;
}

void reserve_gradients(const NamedVars& learning) {
  for (const auto& [name, var] : learning) {
    if (var.needs_grad()) var.gradient()->reserve();
  }
}

int64_t total_updates(const TrainingOptions& training, int64_t batches_in_epoch) {
  constexpr double kRounding = 1e-6;  // 0.1 * 30 is a little more than 3
  const int64_t steps =
      training.max_steps > 0 ? training.max_steps : std::numeric_limits<int64_t>::max();
  if (training.num_train_epochs <= 0) return steps;
  const double updates =
      std::ceil(training.num_train_epochs * static_cast<double>(batches_in_epoch) /
                    static_cast<double>(training.gradient_accumulation_steps) -
                kRounding);
  if (updates >= static_cast<double>(steps)) return steps;
  return std::max<int64_t>(1, static_cast<int64_t>(updates));
}

std::vector<ParamGroup> decay_groups(const TrainingOptions& training, const NamedVars& learning,
                                     const NamedVars& all) {
  const auto& excluded = training.decay_exclude;
  for (const std::string& pattern : excluded) {
    const bool found = std::any_of(
        all.begin(), all.end(), [&](const auto& entry) { return matches(entry.first, pattern); });
    if (!found) {
      fail(ErrorKind::kConfig,
           "[train] training.optimizer.decay_exclude: no parameter's name "
           "matches '",
           pattern, "'; tapestry inspect lists them.");
    }
  }
  return weight_decay_groups(learning, [&](const std::string& name, const Var& var) {
    return (training.decay_all || var.shape().rank() >= 2) &&
           std::none_of(excluded.begin(), excluded.end(),
                        [&](const std::string& pattern) { return matches(name, pattern); });
  });
}

}  // namespace tapestry
