#include "apps/run/trainer/validator.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/run/signals.h"
#include "core/base/interruption.h"

namespace tapestry {
namespace {

constexpr const char* kTest = "test";  // the kind of lines of metrics.jsonl

// " accuracy 91.00 nll 0.2311"
std::string listed(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    const int digits = name == kCutAtLimit ? 0 : is_in_percent(name) ? 2 : 4;
    text += fmt::format(" {} {:.{}f}", name, value, digits);
  }
  return text;
}

}  // namespace

// Every rank measures its part. All ranks use rank 0's metrics, so that they decide alike.
std::map<std::string, double> Validator::measure(HeldOut set, ValidationDetails* details) {
  training_.ranks.communicator().doing("measuring");
  // Ranks wait for each other in the middle of it.
  std::optional<Interruptible> interruptible;
  if (training_.ranks.is_alone()) interruptible.emplace([] { return pending_signal() != 0; });
  auto metrics = training_.task.measure(
      set, {.label_smoothing = training_.config.training.label_smoothing}, details);
  std::vector<double> values;
  for (const auto& [name, value] : metrics) values.push_back(value);
  values = numbers_of(training_.ranks.communicator().broadcast(bytes_of(values)));
  size_t next = 0;
  for (auto& [name, value] : metrics) value = values.at(next++);
  return metrics;
}

std::optional<Validator::Outcome> Validator::validate() {
  const TrainingOptions& options = training_.config.training;
  TrainerState& state = training_.state;
  if (training_.task.examples(HeldOut::kValidation) == 0) return {};
  training_.expect_equal_parameters();
  std::map<std::string, double> metrics;
  ValidationDetails details{.wanted = training_.ranks.is_first() ? options.samples : 0};
  try {
    Ema* const ema = updater_.averages();
    std::unique_ptr<EmaScope> averages = ema ? std::make_unique<EmaScope>(*ema) : nullptr;
    metrics = measure(HeldOut::kValidation, &details);
  } catch (const Interrupted&) {
    state.owes_validation = true;
    return {};
  }
  state.owes_validation = false;
  MetricValues line(metrics.begin(), metrics.end());
  line.emplace_back("tokens", static_cast<double>(state.tokens));
  line.emplace_back("seconds", state.seconds);
  training_.log.metrics(state.step, "valid", line);
  training_.log.show(state.step, details);

  const double value = metric(metrics, "metric_for_best_model", options.metric_for_best_model);
  // In some tasks only the loss is always finite when all is well.
  const auto loss = metrics.find("loss");
  const Outcome outcome{.finite = std::isfinite(loss == metrics.end() ? value : loss->second),
                        .best = keep_best(value)};
  training_.log.info(concat("validation after update ", state.step, ": ", listed(metrics),
                            outcome.best ? "  (best so far)" : ""));
  watch_plateau(metrics);
  return outcome;
}

double Validator::metric(const std::map<std::string, double>& metrics, const char* key,
                         const std::string& name) const {
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    fail(ErrorKind::kConfig, "[train] ", key, " is '", name,
         "', this task's validation has no such metric.");
  }
  return found->second;
}

bool Validator::keep_best(double value) {
  TrainerState& state = training_.state;
  const bool larger = larger_is_better(training_.config.training.metric_for_best_model);
  const bool better = larger ? value > state.best_metric : value < state.best_metric;
  const bool best = std::isfinite(value) && (state.best_step < 0 || better);
  if (best) {
    state.best_metric = value;
    state.best_step = state.step;
    state.validations_without_best = 0;
  } else {
    ++state.validations_without_best;
  }
  return best;
}

bool Validator::patience_is_over() const {
  const int64_t patience = training_.config.training.early_stopping_patience;
  return patience > 0 && training_.state.validations_without_best >= patience;
}

void Validator::watch_plateau(const std::map<std::string, double>& metrics) {
  if (training_.schedule.type != ScheduleType::kReduceOnPlateau) return;
  const std::string& name = training_.config.training.lr_metric;
  PlateauState& plateau = training_.state.plateau;
  const double base = training_.config.learning_rate;
  if (!observe(training_.config.plateau, metric(metrics, "lr_metric", name), larger_is_better(name),
               base, training_.schedule.lowest(base), plateau)) {
    return;
  }
  training_.log.info(fmt::format("no better {} than {:.4f}: the learning rate falls to {:.3g}",
                                 name, plateau.best, base * plateau.scale));
}

// Tests the weights of the best checkpoint's model.safetensors, which users get, averages included.
void Validator::measure_test() {
  if (training_.task.examples(HeldOut::kTest) == 0) return;
  const bool measured =
      training_.ranks.is_first() && training_.log.has_metrics(training_.state.step, kTest);
  if (training_.ranks.all_gather({measured ? 1. : 0.}).front().front() != 0) return;
  std::string name;
  if (training_.ranks.is_first()) {
    const std::filesystem::path path = resolve_checkpoint(training_.folder->path());
    name = std::filesystem::canonical(path).filename();
    Checkpoint checkpoint(path);
    load_parameters(training_.task.parameters(), TensorReader(checkpoint.open(kModelFile)));
  }
  for (const auto& [parameter, var] : training_.params) training_.ranks.broadcast(var.value());
  const std::map<std::string, double> metrics = measure(HeldOut::kTest);
  if (!training_.ranks.is_first()) return;
  const std::string step = name.substr(name.rfind('-') + 1);
  MetricValues line(metrics.begin(), metrics.end());
  line.emplace_back("checkpoint", std::stod(step));
  training_.log.metrics(training_.state.step, kTest, line);
  training_.log.info(
      concat("test: ", listed(metrics), "  (", name,
             std::stoll(step) == training_.state.best_step ? ", the best)" : ", the last)"));
}

}  // namespace tapestry
