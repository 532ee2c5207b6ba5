// Measurements of a training, and their consequences.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/run/signals.h"
#include "apps/run/trainer/trainer.h"
#include "core/base/interruption.h"

namespace tapestry {
namespace {

constexpr const char* kTest = "test";  // the kind of lines of metrics.jsonl

// " accuracy 91.00 nll 0.2311"
std::string listed(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    const int digits = name == kCutAtLimit ? 0 : larger_is_better(name) ? 2 : 4;
    text += fmt::format(" {} {:.{}f}", name, value, digits);
  }
  return text;
}

}  // namespace

// Every rank measures its part. All ranks use rank 0's metrics, so that they decide alike.
std::map<std::string, double> Trainer::measure(HeldOut set, ValidationDetails* details) {
  ranks_.communicator().doing("measuring");
  // Ranks wait for each other in the middle of it.
  std::optional<Interruptible> interruptible;
  if (ranks_.is_alone()) interruptible.emplace([] { return pending_signal() != 0; });
  auto metrics = task_.measure(set, {.label_smoothing = config_.training.label_smoothing}, details);
  if (ranks_.is_alone()) return metrics;
  std::vector<double> values;
  for (const auto& [name, value] : metrics) values.push_back(value);
  values = numbers_of(ranks_.communicator().broadcast(bytes_of(values)));
  size_t next = 0;
  for (auto& [name, value] : metrics) value = values.at(next++);
  return metrics;
}

bool Trainer::validate() {
  if (task_.examples(HeldOut::kValidation) == 0) return false;
  finish_update();
  expect_equal_parameters();
  std::map<std::string, double> metrics;
  ValidationDetails details{.wanted = ranks_.is_first() ? config_.training.samples : 0};
  try {
    std::unique_ptr<EmaScope> averages = ema_ ? std::make_unique<EmaScope>(*ema_) : nullptr;
    metrics = measure(HeldOut::kValidation, &details);
  } catch (const Interrupted&) {
    state_.owes_validation = true;
    return false;
  }
  state_.owes_validation = false;
  const std::string text = concat("validation after update ", state_.step, ": ", listed(metrics));
  MetricValues line(metrics.begin(), metrics.end());
  line.emplace_back("tokens", static_cast<double>(state_.tokens));
  line.emplace_back("seconds", state_.seconds);
  log_.metrics(state_.step, "valid", line);
  log_.show(state_.step, details);

  const std::string& name = config_.training.metric_for_best_model;
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    fail(ErrorKind::kConfig, "[train] metric_for_best_model is '", name,
         "', this task's validation has no such metric.");
  }
  const double value = found->second;
  // In some tasks only the loss is always finite when all is well.
  const auto loss = metrics.find("loss");
  validation_is_finite_ = std::isfinite(loss == metrics.end() ? value : loss->second);
  proved_step_ = validation_is_finite_ ? state_.step : -1;
  const bool better =
      larger_is_better(name) ? value > state_.best_metric : value < state_.best_metric;
  const bool best = std::isfinite(value) && (state_.best_step < 0 || better);
  if (best) {
    state_.best_metric = value;
    state_.best_step = state_.step;
    state_.validations_without_best = 0;
  } else {
    ++state_.validations_without_best;
  }
  log_.info(text + (best ? "  (best so far)" : ""));
  watch_plateau(metrics);
  return best;
}

void Trainer::watch_plateau(const std::map<std::string, double>& metrics) {
  if (schedule_.type != ScheduleType::kReduceOnPlateau) return;
  const std::string& name = config_.training.lr_metric;
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    fail(ErrorKind::kConfig, "[train] lr_metric is '", name,
         "', this task's validation has no such metric.");
  }
  PlateauState& plateau = state_.plateau;
  const double base = config_.learning_rate;
  if (!observe(config_.plateau, found->second, larger_is_better(name), base, schedule_.lowest(base),
               plateau)) {
    return;
  }
  log_.info(fmt::format("no better {} than {:.4f}: the learning rate falls to {:.3g}", name,
                        plateau.best, base * plateau.scale));
}

// Tests the weights of the best checkpoint's model.safetensors, which users get, averages included.
void Trainer::measure_test() {
  if (task_.examples(HeldOut::kTest) == 0) return;
  const bool measured = ranks_.is_first() && log_.has_metrics(state_.step, kTest);
  if (ranks_.all_gather({measured ? 1. : 0.}).front().front() != 0) return;
  std::string name;
  if (ranks_.is_first()) {
    const std::filesystem::path path = resolve_checkpoint(folder_->path());
    name = std::filesystem::canonical(path).filename();
    Checkpoint checkpoint(path);
    load_parameters(task_.parameters(), TensorReader(checkpoint.open(kModelFile)));
  }
  for (const auto& [parameter, var] : params_) ranks_.broadcast(var.value());
  const std::map<std::string, double> metrics = measure(HeldOut::kTest);
  if (!ranks_.is_first()) return;
  const std::string step = name.substr(name.rfind('-') + 1);
  MetricValues line(metrics.begin(), metrics.end());
  line.emplace_back("checkpoint", std::stod(step));
  log_.metrics(state_.step, kTest, line);
  log_.info(concat("test: ", listed(metrics), "  (", name,
                   std::stoll(step) == state_.best_step ? ", the best)" : ", the last)"));
}

}  // namespace tapestry
