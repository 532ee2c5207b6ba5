#include "apps/run/trainer.h"

#include <fmt/format.h>

#include <csignal>
#include <functional>

#include "apps/run/signals.h"
#include "apps/run/updates.h"
#include "core/clock.h"
#include "core/device_runtime.h"

namespace tapestry {
namespace {

// Random streams set aside for each micro-batch of an update.
constexpr uint32_t kStreamsPerMicroBatch = 1 << 16;

// Those of the config, with the end of this run.
ScheduleOptions schedule_until(ScheduleOptions options, int64_t total_steps) {
  options.max_steps = total_steps;
  return options;
}

// The batches of an epoch count only where epochs do: a long text takes time to be counted.
int64_t updates_of(const TrainingOptions& training, const TrainingTask& task) {
  return total_updates(training, training.num_train_epochs > 0 ? task.batches_in_epoch() : 0);
}

}  // namespace

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
    if (config.training.ema_decay > 0) begin_averages();
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

bool Trainer::patience_is_over() const {
  const int64_t patience = config_.training.early_stopping_patience;
  return patience > 0 && state_.validations_without_best >= patience;
}

}  // namespace tapestry
