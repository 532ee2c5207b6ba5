#include "apps/run/updates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/pattern.h"

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
    // An adapter's parameter matches by its layer; others never match a target.
    expect_names("lora.target", config.lora.target, [](const std::string& name) {
      return is_adapter(name) ? name.substr(0, name.rfind('.')) : "";
    });
  }
  // A pattern that only matches frozen parameters would have no effect.
  const auto expect_reach = [&](const char* key, const std::vector<std::string>& patterns,
                                auto&& takes_part, const char* why) {
    for (const std::string& pattern : patterns) {
      const bool reaches = std::any_of(params.begin(), params.end(), [&](const auto& entry) {
        return matches(entry.first, pattern) && takes_part(entry.first);
      });
      if (reaches) continue;
      fail(ErrorKind::kConfig, "[train] training.", key, ": '", pattern,
           "' has no effect: what it names ", why);
    }
  };
  Config thawed = config;
  thawed.training.freeze.clear();
  expect_reach(
      "freeze", config.training.freeze,
      [&](const std::string& name) { return learns(thawed, name); },
      "does not learn with training.lora anyway.");
  if (config.lora.rank > 0) {
    expect_reach(
        "lora.modules_to_save", config.training.modules_to_save,
        [&](const std::string& name) { return !is_adapter(name) && learns(config, name); },
        "learns anyway, or training.freeze keeps it as it is.");
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

namespace {

// "; muon makes 12 matrices of 98304 parameters orthogonal"
std::string muon_summary(const ParamStore& store, const Config& config) {
  int64_t elements = 0;
  size_t matrices = 0;
  for (const Parameter& parameter : store.parameters()) {
    if (!learns(config, parameter.name) || !is_orthogonalized(config, parameter)) continue;
    matrices += parameter.projections.size();
    elements += parameter.var.value().numel();
  }
  return concat("; muon makes ", matrices, " matrices of ", elements, " parameters orthogonal");
}

// "; the base has 4 matrices in int4, 1 in int8: 81 MB"
std::string base_summary(const ParamStore& store) {
  std::map<WeightFormat, int64_t> counts;
  int64_t bytes = 0;
  for (const Parameter& parameter : store.parameters()) {
    if (!parameter.frozen) continue;
    ++counts[parameter.frozen->format()];
    bytes += parameter.frozen->words().bytes();
  }
  std::string text;
  for (const auto& [format, count] : counts) {
    text += concat(text.empty() ? "; the base has " : ", ", count,
                   text.empty() ? count == 1 ? " matrix in " : " matrices in " : " in ",
                   name_of(format));
  }
  constexpr int64_t kMega = 1'000'000;
  return text.empty() ? text : concat(text, ": ", (bytes + kMega / 2) / kMega, " MB");
}

}  // namespace

std::string learning_summary(const ParamStore& store, const Config& config) {
  int64_t learning = 0, tensors = 0;
  for (const Parameter& parameter : store.parameters()) {
    if (!parameter.trained || !learns(config, parameter.name)) continue;
    learning += parameter.var.value().numel();
    ++tensors;
  }
  std::string text =
      concat(store.elements(), " parameters in ", store.parameters().size(), " tensors");
  if (config.optimizer.type == OptimizerType::kMuon) text += muon_summary(store, config);
  if (config.lora.rank == 0 && config.training.freeze.empty()) return text;
  const std::string base = base_summary(store);
  text += concat(", of which ", learning, " in ", tensors, " learn", base);
  const char* separator = "; training.freeze keeps ";
  for (const std::string& pattern : config.training.freeze) {
    int64_t kept = 0, names = 0;
    for (const Parameter& parameter : store.parameters()) {
      if (!matches(parameter.name, pattern)) continue;
      kept += parameter.shape.numel();
      ++names;
    }
    text += concat(separator, kept, " in ", names, " by '", pattern, '\'');
    separator = ", ";
  }
  return text;
}

void reserve_gradients(const NamedVars& learning) {
  for (const auto& [name, var] : learning) {
    if (var.needs_grad()) var.gradient()->reserve();
  }
}

namespace {

// Updates in this number of batches.
double updates_of(const TrainingOptions& training, double batches) {
  constexpr double kRounding = 1e-6;  // 0.1 * 30 is a little more than 3
  return std::ceil(batches / static_cast<double>(training.gradient_accumulation_steps) - kRounding);
}

}  // namespace

int64_t total_updates(const TrainingOptions& training, int64_t batches_in_epoch, int64_t more) {
  const int64_t steps =
      training.max_steps > 0 ? training.max_steps : std::numeric_limits<int64_t>::max();
  if (training.num_train_epochs <= 0) return steps;
  const double updates =
      updates_of(training, training.num_train_epochs * static_cast<double>(batches_in_epoch)) +
      static_cast<double>(more);
  if (updates >= static_cast<double>(steps)) return steps;
  return std::max<int64_t>(1, static_cast<int64_t>(updates));
}

int64_t more_updates(const TrainingOptions& training, int64_t batches_in_epoch, int64_t step,
                     int64_t epoch, int64_t left) {
  const auto whole = static_cast<double>(batches_in_epoch);
  const double after = training.num_train_epochs - static_cast<double>(epoch + 1);
  const double rest = std::max(0.0, static_cast<double>(left) + after * whole);
  return step + static_cast<int64_t>(updates_of(training, rest) -
                                     updates_of(training, training.num_train_epochs * whole));
}

std::vector<ParamGroup> decay_groups(const TrainingOptions& training, const NamedVars& learning,
                                     const NamedVars& all) {
  const auto& excluded = training.decay_exclude;
  for (const std::string& pattern : excluded) {
    const auto named = [&](const auto& entry) { return matches(entry.first, pattern); };
    if (std::ranges::any_of(learning, named)) continue;
    fail(ErrorKind::kConfig, "[train] training.optimizer.decay_exclude: ",
         std::ranges::any_of(all, named) ? "no parameter that learns has a name that matches '"
                                         : "no parameter's name matches '",
         pattern, "'; tapestry inspect lists them.");
  }
  const auto is_matrix = [](const auto& entry) { return entry.second.shape().rank() >= 2; };
  if (training.decay_all && std::ranges::all_of(learning, is_matrix)) {
    fail(ErrorKind::kConfig,
         "[train] training.optimizer.decay_all has no effect: no bias and no norm learns.");
  }
  return weight_decay_groups(learning, [&](const std::string& name, const Var& var) {
    return (training.decay_all || var.shape().rank() >= 2) &&
           std::none_of(excluded.begin(), excluded.end(),
                        [&](const std::string& pattern) { return matches(name, pattern); });
  });
}

bool is_orthogonalized(const Config& config, const Parameter& parameter) {
  const auto& excluded = config.training.adamw_parameters;
  return config.optimizer.type == OptimizerType::kMuon && !parameter.projections.empty() &&
         std::none_of(excluded.begin(), excluded.end(),
                      [&](const std::string& pattern) { return matches(parameter.name, pattern); });
}

std::vector<ParamGroup> update_groups(const Config& config, const NamedVars& learning,
                                      const ParamStore& store) {
  const std::vector<ParamGroup> by_decay = decay_groups(config.training, learning, store.named());
  if (config.optimizer.type != OptimizerType::kMuon) return by_decay;
  for (const std::string& pattern : config.training.adamw_parameters) {
    const bool found = std::any_of(learning.begin(), learning.end(), [&](const auto& entry) {
      return matches(entry.first, pattern) && !store.at(entry.first).projections.empty();
    });
    if (found) continue;
    fail(ErrorKind::kConfig, "[train] training.optimizer.adamw_parameters: '", pattern,
         "' names no matrix that learns and that muon would take; tapestry inspect lists the "
         "names.");
  }
  const double scale = config.training.adamw_learning_rate / config.learning_rate;
  if (!std::isfinite(scale)) {
    fail(ErrorKind::kConfig, "[train] training.optimizer.adamw_learning_rate, ",
         config.training.adamw_learning_rate, ", is too much beside training.learning_rate, ",
         config.learning_rate, '.');
  }
  std::vector<ParamGroup> matrices, others;
  for (const ParamGroup& group : by_decay) {
    ParamGroup& orthogonal = matrices.emplace_back();
    orthogonal.weight_decay = group.weight_decay;
    orthogonal.orthogonalize = true;
    ParamGroup& rest = others.emplace_back();
    rest.weight_decay = group.weight_decay;
    rest.learning_rate_scale = scale;
    for (const auto& [name, var] : group.params) {
      const Parameter& parameter = store.at(name);
      if (is_orthogonalized(config, parameter)) {
        orthogonal.params.emplace_back(name, var);
        orthogonal.packed_rows[name] = parameter.projections;
      } else {
        rest.params.emplace_back(name, var);
      }
    }
  }
  if (std::ranges::all_of(matrices, [](const auto& group) { return group.params.empty(); }) &&
      !learning.empty()) {
    fail(ErrorKind::kConfig,
         "[train] training.optimizer.name: muon is for matrices between layers, and none learns "
         "here; take adamw.");
  }
  matrices.insert(matrices.end(), others.begin(), others.end());
  return matrices;
}

}  // namespace tapestry
