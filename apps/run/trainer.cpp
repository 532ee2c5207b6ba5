#include "apps/run/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/run/signals.h"
#include "core/allocator.h"
#include "core/clock.h"
#include "core/device_runtime.h"
#include "core/pattern.h"

namespace tapestry {
namespace {

constexpr int64_t kMostSkippedInARow = 10;
constexpr const char* kTest = "test";  // the kind of lines of metrics.jsonl
// Random streams set aside for each micro-batch of an update.
constexpr uint32_t kStreamsPerMicroBatch = 1 << 16;
// Of names in optimizer.safetensors: parameters as they are trained, and what Ema calls averages.
const std::string kTrainedPrefix = "parameter/", kAveragePrefix = "average/";

// Those of the config, with the end of this run.
ScheduleOptions schedule_until(ScheduleOptions options, int64_t total_steps) {
  options.max_steps = total_steps;
  return options;
}

// The batches of an epoch count only where epochs do: a long text takes time to be counted.
int64_t updates_of(const TrainingOptions& training, const TrainingTask& task) {
  return total_updates(training, training.num_train_epochs > 0 ? task.batches_in_epoch() : 0);
}

// " accuracy 91.00 nll 0.2311"
std::string listed(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += fmt::format(" {} {:.{}f}", name, value, larger_is_better(name) ? 2 : 4);
  }
  return text;
}

// Without the warm-up, what a short run averages would be its random beginning above all.
EmaOptions ema_options(const Config& config) {
  return {.decay = config.training.ema_decay, .warmup = true};
}

}  // namespace

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

Trainer::Trainer(const Config& config, TrainingTask& task, RunFolder& folder, RunLog& log,
                 Resume&& start)
    : config_(config),
      task_(task),
      total_steps_(updates_of(config.training, task)),
      schedule_(schedule_until(config.schedule, total_steps_)),
      folder_(folder),
      log_(log),
      params_(task.parameters().named()),
      trained_(trained_parameters(params_, config)),
      optimizer_(config.optimizer, decay_groups(config.training, trained_, params_)) {
  // Open files of a checkpoint that is deleted later would keep their place on the disk.
  const Resume resume = std::move(start);
  if (resume.goes_on()) {
    state_ = resume.state();
    saved_step_ = state_.step;
    load_checkpoint(resume);
  } else {
    load_masters(resume.model());
    if (config.training.ema_decay > 0) ema_ = std::make_unique<Ema>(ema_options(config), trained_);
  }
}

// Tensors that do not fit come from a changed config: the user must know how to go on.
void Trainer::load_checkpoint(const Resume& resume) {
  try {
    load_training_tensors(resume);
  } catch (const Error& error) {
    if (resume.changes().empty()) throw;
    fail(
        error.kind(), error.what(), " Changed since the checkpoint: ", resume.changes(),
        ". Undo what the model or the optimizer was made by, or start anew with --resume never and "
        "another output_dir.");
  }
}

// The reverse of save().
void Trainer::load_training_tensors(const Resume& resume) {
  const auto is_average = [](const std::string& name) {
    return name.starts_with(kAveragePrefix) || name == "num_updates";
  };
  const TensorReader trained = resume.training().under(kTrainedPrefix);
  const TensorReader averages = resume.training().only(is_average);
  const TensorReader state = resume.training().only([&](const std::string& name) {
    return !name.starts_with(kTrainedPrefix) && !is_average(name);
  });
  const TensorReader& weights = trained.empty() ? resume.model() : trained;
  load_parameters(task_.parameters(), weights);
  load_masters(weights);
  load_tensors(state, optimizer_.state(), Types::kSame);
  if (config_.training.ema_decay <= 0) return;
  ema_ = std::make_unique<Ema>(ema_options(config_), trained_);
  if (!averages.empty()) load_tensors(averages, ema_->state(), Types::kSame);
}

// Mixed precision: the weights before they were rounded to the model's.
void Trainer::load_masters(const TensorReader& weights) {
  for (const auto& [name, master] : optimizer_.masters()) {
    if (weights.find(name) != nullptr) weights.read(name, master);
  }
}

void Trainer::launch_update() {
  const TrainingOptions& training = config_.training;
  Launched launched{.step = state_.step + 1,
                    .size = task_.next_update(training.gradient_accumulation_steps),
                    .sums = {}};
  const CrossEntropyOptions options{.label_smoothing = training.label_smoothing,
                                    .normalizer = static_cast<double>(launched.size.targets)};
  const Device device = task_.parameters().device();
  std::vector<Tensor> sums;
  for (int64_t i = 0; i < launched.size.micro_batches; ++i) {
    const auto forward_and_backward = [&] {
      Tape tape({.seed = config_.seed,
                 .step = static_cast<uint32_t>(state_.step),
                 .stream = static_cast<uint32_t>(i) * kStreamsPerMicroBatch});
      const CrossEntropy result = task_.loss(i, options);
      sums.push_back(result.sums);
      if (!trained_.empty()) tape.backward(result.loss);
    };
    if (config_.cuda_graphs) {
      as_graph(device, std::ref(forward_and_backward));  // by reference: no allocation
    } else {
      forward_and_backward();
    }
    launched.sums.emplace_back(sums.back());
  }
  // Now the device has enough to do: time to hear of the update before.
  finish_update();
  optimizer_.launch(rate_of(launched.step),
                    {.max_grad_norm = training.max_grad_norm, .clip_value = training.clip_value},
                    /*gradient_scale=*/1, /*also_finite=*/sums);
  optimizer_.zero_grad();
  window_.tokens += launched.size.tokens;
  launched_ = std::move(launched);
}

void Trainer::finish_update() {
  if (!launched_) return;
  const auto targets = static_cast<double>(launched_->size.targets);
  const StepResult result = optimizer_.outcome();
  Update update{.step = launched_->step, .grad_norm = result.grad_norm};
  for (HostCopy& copy : launched_->sums) {
    const double* const sums = copy.wait().data<double>();
    update.loss += sums[0] / targets;
    update.nll += sums[1] / targets;
  }
  window_.targets += result.finite ? launched_->size.targets : 0;
  launched_.reset();
  if (!result.finite) return report_skipped(update);
  if (ema_) ema_->update();
  state_.skipped_in_a_row = 0;
  window_.loss += update.loss * targets;
  window_.nll += update.nll * targets;
  window_.grad_norm = update.grad_norm;
}

// An update: its micro-batches forward and backward, then (on a GPU while those still run) the
// counting of the update before, then clipping, the optimizer's step and the zeroing of gradients.
// The averages follow when an update is counted: at once on a CPU, and where a log line, a
// validation or a save is due; otherwise one update later. Log, validation and save come last.
int Trainer::run() {
  const TrainingOptions& training = config_.training;
  const double started = steady_seconds() - state_.seconds;
  const bool on_cpu = task_.parameters().device().is_cpu();
  const auto due = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  const auto time_is_up = [&] {
    return training.max_hours > 0 && state_.seconds >= 3600 * training.max_hours;
  };
  const auto is_over = [&] {
    return state_.step >= total_steps_ || patience_is_over() || time_is_up();
  };
  if (training.num_train_epochs > 0) {
    log_.info(concat("num_train_epochs ", training.num_train_epochs, ", ", task_.batches_in_epoch(),
                     " batches in the first: the run ends after update ", total_steps_));
  }
  if (state_.step < total_steps_) log_.info("learning rate: " + rates_to_come());
  while (!is_over()) {
    const double before = steady_seconds();
    launch_update();
    ++state_.step;
    state_.position = task_.position();
    state_.seconds = steady_seconds() - started;
    const bool logged = state_.step == total_steps_ || due(training.logging_steps);
    if (on_cpu || logged) finish_update();
    window_.seconds += steady_seconds() - before;
    report(logged);

    const bool best = (due(training.eval_steps) || is_over()) && validate();
    state_.seconds = steady_seconds() - started;
    if (due(training.save_steps) || best || is_over()) save(best);

    if (const int signal = pending_signal(); signal != 0) {
      save(false);
      log_.info(concat("stopped by ", signal == SIGINT ? "SIGINT" : "SIGTERM", " after update ",
                       state_.step, "; the same command (--resume auto) goes on from here"));
      return 128 + signal;
    }
  }
  if (patience_is_over()) {
    log_.info(concat("stopped early: no better ", training.metric_for_best_model, " than ",
                     fmt::format("{:.2f}", state_.best_metric), " of update ", state_.best_step,
                     " in ", state_.validations_without_best, " validations"));
  }
  log_.info(concat("done: ", state_.step, " updates in ", duration_text(state_.seconds)));
  if (config_.cuda_graphs && !on_cpu) {
    const GraphStats stats = graph_stats();
    log_.info(concat("CUDA graphs: ", stats.launches, " launched, ", stats.graphs, " made"));
    if (!stats.refusal.empty()) log_.warn(concat("no graph of every shape: ", stats.refusal));
  }
  measure_test();
  log_.finish();
  return 0;
}

void Trainer::report_skipped(const Update& update) {
  ++state_.skipped_updates;
  ++state_.skipped_in_a_row;
  const std::string what = std::isfinite(update.loss) ? concat("gradient norm ", update.grad_norm)
                                                      : concat("loss ", update.loss);
  log_.warn(concat("update ", update.step, " is skipped: ", what, " is not finite (",
                   state_.skipped_in_a_row, " in a row, ", state_.skipped_updates, " in all)"));
  if (state_.skipped_in_a_row < kMostSkippedInARow) return;
  fail(ErrorKind::kDiverged, "[train] ", kMostSkippedInARow,
       " updates in a row had no finite loss and gradient, the last at update ", update.step,
       "; lower the learning rate or raise warmup_steps. The last good checkpoint is in ",
       folder_.path(), '.');
}

void Trainer::report(bool logged) {
  const int64_t total = total_steps_;
  // Not a number where every update was skipped.
  const double loss = window_.loss / static_cast<double>(window_.targets);
  const double nll = window_.nll / static_cast<double>(window_.targets);
  const double rate = static_cast<double>(window_.tokens) / window_.seconds;
  double left = state_.seconds / static_cast<double>(std::max<int64_t>(1, state_.step)) *
                static_cast<double>(total - state_.step);
  if (config_.training.max_hours > 0) {
    left = std::min(left, 3600 * config_.training.max_hours - state_.seconds);
  }
  const std::string status =
      fmt::format("loss {:.3f}  {:.0f} tokens/s  {} left", loss, rate, duration_text(left));
  log_.progress(state_.step, total, status);
  if (!logged) return;

  const double lr = rate_of(state_.step);
  const MemoryStats memory = memory_of(task_.parameters().device());
  // The error of a point is no probability.
  const bool likelihood = !config_.task->reads_points;
  const std::string nats =
      likelihood ? fmt::format("  nll {:.4f}  ppl {:.2f}", nll, std::exp(nll)) : "";
  log_.info(
      fmt::format("update {}  epoch {}  loss {:.4f}{}  lr {:.3g}  grad {:.3g}  "
                  "{:.0f} tokens/s  {} left",
                  state_.step, state_.position.epoch, loss, nats, lr, window_.grad_norm, rate,
                  duration_text(left)));
  MetricValues line = {{"epoch", static_cast<double>(state_.position.epoch)}, {"loss", loss}};
  if (likelihood) {
    line.emplace_back("nll", nll);
    line.emplace_back("ppl", std::exp(nll));
  }
  line.insert(line.end(), {{"learning_rate", lr},
                           {"grad_norm", window_.grad_norm},
                           {"tokens_per_s", rate},
                           {"skipped_updates", static_cast<double>(state_.skipped_updates)},
                           {"peak_bytes", static_cast<double>(memory.peak_bytes)},
                           {"seconds", state_.seconds}});
  log_.metrics(state_.step, "train", line);
  window_ = {};
}

bool Trainer::validate() {
  if (task_.examples(HeldOut::kValidation) == 0) return false;
  finish_update();
  std::map<std::string, double> metrics;
  {
    std::unique_ptr<EmaScope> averages = ema_ ? std::make_unique<EmaScope>(*ema_) : nullptr;
    metrics =
        task_.measure(HeldOut::kValidation, {.label_smoothing = config_.training.label_smoothing});
  }
  const std::string text = concat("validation after update ", state_.step, ": ", listed(metrics));
  MetricValues line(metrics.begin(), metrics.end());
  line.emplace_back("seconds", state_.seconds);
  log_.metrics(state_.step, "valid", line);

  const std::string& name = config_.training.metric_for_best_model;
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    fail(ErrorKind::kConfig, "[train] metric_for_best_model is '", name,
         "', this task's validation has no such metric.");
  }
  const double value = found->second;
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

double Trainer::rate_of(int64_t step) const {
  const double rate = learning_rate(schedule_, config_.learning_rate, step);
  return schedule_.type == ScheduleType::kReduceOnPlateau ? rate * state_.plateau.scale : rate;
}

std::string Trainer::rates_to_come() const {
  std::string text;
  for (const int64_t step : turning_points(schedule_, state_.step + 1)) {
    text += fmt::format("{}{:.3g} at update {}", text.empty() ? "" : ", ", rate_of(step), step);
  }
  if (schedule_.type == ScheduleType::kReduceOnPlateau) {
    text +=
        fmt::format("; times {} after more than {} validations without a better {}",
                    config_.plateau.factor, config_.plateau.patience, config_.training.lr_metric);
  }
  return text;
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

// What model.safetensors of the best checkpoint holds is what a user gets, averages included.
void Trainer::measure_test() {
  if (task_.examples(HeldOut::kTest) == 0 || log_.has_metrics(state_.step, kTest)) return;
  const std::filesystem::path path = resolve_checkpoint(folder_.path());
  const std::string name = std::filesystem::canonical(path).filename();
  Checkpoint checkpoint(path);
  load_parameters(task_.parameters(), TensorReader(checkpoint.open(kModelFile)));
  const std::map<std::string, double> metrics =
      task_.measure(HeldOut::kTest, {.label_smoothing = config_.training.label_smoothing});
  const std::string step = name.substr(name.rfind('-') + 1);
  MetricValues line(metrics.begin(), metrics.end());
  line.emplace_back("checkpoint", std::stod(step));
  log_.metrics(state_.step, kTest, line);
  log_.info(concat("test: ", listed(metrics), "  (", name,
                   std::stoll(step) == state_.best_step ? ", the best)" : ", the last)"));
}

bool Trainer::patience_is_over() const {
  const int64_t patience = config_.training.early_stopping_patience;
  return patience > 0 && state_.validations_without_best >= patience;
}

// model.safetensors holds what a user wants to translate with: the averages where they are kept.
// The trained parameters then travel with the optimizer, as they do where the model's are their
// roundings. Everything goes from where it is into the file.
void Trainer::save(bool best) {
  if (saved_step_ == state_.step && !best) return;
  finish_update();
  const NamedTensors all_averages = ema_ ? ema_->state() : NamedTensors();
  const NamedTensors all_masters = optimizer_.masters();
  const std::map<std::string, Tensor> averages(all_averages.begin(), all_averages.end());
  const std::map<std::string, Tensor> masters(all_masters.begin(), all_masters.end());
  std::vector<TensorToWrite> model, training;
  for (const auto& [name, tensor] : optimizer_.state()) training.emplace_back(name, tensor);
  for (const auto& [name, var] : params_) {
    const Tensor& value = var.value();
    const auto average = averages.find(kAveragePrefix + name);
    const Tensor& shown = average == averages.end() ? value : average->second;
    model.emplace_back(name, value.shape(), value.dtype(), [shown] { return shown; });
    if (!ema_ && masters.empty()) continue;
    const auto master = masters.find(name);
    training.emplace_back(kTrainedPrefix + name, master == masters.end() ? value : master->second);
  }
  for (const auto& [name, tensor] : all_averages) training.emplace_back(name, tensor);

  const std::map<std::string, std::string> files = task_.files();
  CheckpointContent content(files.begin(), files.end());
  content[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(model, {{"format", "tapestry"}}, sink);
  };
  content[kOptimizerFile] = [&](const ByteSink& sink) { write_safetensors(training, {}, sink); };
  content[kTrainerStateFile] = to_json(state_);
  folder_.commit(state_.step, content, best, config_.training.save_total_limit);
  saved_step_ = state_.step;
}

}  // namespace tapestry
