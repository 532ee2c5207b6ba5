#include "apps/run/trainer/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "apps/run/activation_watch.h"
#include "apps/run/signals.h"
#include "apps/run/updates.h"
#include "core/base/clock.h"
#include "core/base/interruption.h"
#include "core/device_runtime.h"

namespace tapestry {
namespace {

// Random streams set aside for each micro-batch of an update.
constexpr uint32_t kStreamsPerMicroBatch = 1 << 16;

// The config's schedule, with the end of this run.
ScheduleOptions schedule_until(ScheduleOptions options, int64_t total_steps) {
  options.max_steps = total_steps;
  return options;
}

// The batches of an epoch are counted only if epochs matter: counting takes time with a long text.
int64_t updates_of(const TrainingOptions& training, const TrainingTask& task, Resume& resume) {
  if (training.num_train_epochs <= 0) return total_updates(training, 0);
  const int64_t in_epoch = task.batches_in_epoch();
  const TrainerState& state = resume.state();
  if (state.counts_anew) {
    const DataPosition& place = state.position;
    resume.longer_by(more_updates(training, in_epoch, state.step, place.epoch,
                                  task.batches_in_epoch(place) - place.batch));
  }
  return total_updates(training, in_epoch, state.more_updates);
}

// A single rank with one part needs no exchange.
std::unique_ptr<GradientExchange> make_exchange(const Config& config, Ranks& ranks,
                                                const std::vector<ParamGroup>& groups) {
  const DistributedOptions& options = config.distributed;
  if (ranks.is_alone() && options.parts <= 1) return nullptr;
  const bool on_gpus = !groups.empty() && !groups.front().params.empty() &&
                       !groups.front().params.front().second.value().device().is_cpu();
  if (!ranks.is_alone() && on_gpus) ranks.communicator().connect_gpus(options.sum);
  constexpr double kMegabyte = 1 << 20;
  return std::make_unique<GradientExchange>(
      ranks.communicator(), groups,
      ExchangeOptions{.parts = options.parts,
                      .shard = options.shard,
                      .bucket_bytes = static_cast<int64_t>(kMegabyte * options.bucket_mb)});
}

NamedTensors values_of(const NamedVars& params) {
  NamedTensors values;
  for (const auto& [name, var] : params) values.emplace_back(name, var.value());
  return values;
}

}  // namespace

Trainer::Trainer(const Config& config, TrainingTask& task, Ranks& ranks, RunFolder* folder,
                 RunLog& log, Resume&& start)
    : config_(config),
      task_(task),
      total_steps_(updates_of(config.training, task, start)),
      schedule_(schedule_until(config.schedule, total_steps_)),
      ranks_(ranks),
      folder_(folder),
      log_(log),
      params_(task.parameters().named()),
      trained_(trained_parameters(params_, config)),
      exchange_(make_exchange(config, ranks, update_groups(config, trained_, task.parameters()))),
      optimizer_(config.optimizer, exchange_ ? exchange_->groups()
                                             : update_groups(config, trained_, task.parameters())) {
  if (!exchange_) reserve_gradients(trained_);
  // Open files of a checkpoint that is deleted later would keep their place on the disk.
  const Resume resume = std::move(start);
  state_ = resume.state();
  state_.counts_anew = false;
  if (resume.goes_on()) {
    saved_step_ = state_.step;
    agreed_seconds_ = state_.seconds;
    protect_earlier();
    load_checkpoint(resume);
  } else {
    if (!config.init_from.empty()) share(values_of(params_));
    load_first_masters(resume.model());
    if (config.training.ema_decay > 0) begin_averages();
  }
  const bool keeps_rounded = std::ranges::any_of(params_, [&](const auto& parameter) {
    return parameter.second.value().dtype() == DType::kBFloat16 && !learns(config, parameter.first);
  });
  if (keeps_rounded) first_weights_ = resume.model();
  state_.parts = std::max<int64_t>(1, config.distributed.parts);
  if (!ranks.is_alone() && config.model.norm == NormKind::kBatch) defer_statistics();
  if (const int64_t records = config.training.flight_records; folder != nullptr && records > 0) {
    recorder_ =
        std::make_unique<FlightRecorder>(folder->file(FlightRecorder::kFile), records, state_.step);
    optimizer_.count_figures();
  }
  expect_equal_parameters();
}

// Parameters without gradient may be running statistics.
void Trainer::defer_statistics() {
  std::vector<Tensor> running;
  for (const auto& [name, var] : params_) {
    if (!var.needs_grad()) running.push_back(var.value());
  }
  statistics_.emplace(std::move(running));
}

bool Trainer::launch_update() {
  const TrainingOptions& training = config_.training;
  const double before = steady_seconds(), waited = window_.waited;
  ranks_.communicator().doing("computing an update");
  Launched launched{
      .step = state_.step + 1,
      .start = state_.position,
      .size = agree_on(task_.next_update(training.gradient_accumulation_steps / ranks_.size())),
      .sums = {}};
  std::vector<Tensor> sums = compute_gradients(launched.size, &launched.largest_activation);
  if (sums.empty()) {
    optimizer_.zero_grad();
    return false;
  }
  exchange(sums, steady_seconds() - before - (window_.waited - waited));
  for (const Tensor& of_one : sums) launched.sums.emplace_back(of_one);
  // Now the device has enough to do: finish the update before.
  finish_update();
  watch_for_jump(launched, sums);
  optimizer_.launch(rate_of(launched.step),
                    {.max_grad_norm = training.max_grad_norm, .clip_value = training.clip_value},
                    /*gradient_scale=*/1, /*also_finite=*/sums,
                    exchange_ ? exchange_->squares() : Tensor());
  optimizer_.zero_grad();
  if (exchange_) exchange_->share_parameters();
  window_.tokens += launched.size.tokens;
  state_.tokens += launched.size.tokens;
  launched_ = std::move(launched);
  return true;
}

// An update cannot be left if others wait for this rank's gradients, if parts are half collected,
// or if running statistics have moved.
bool Trainer::can_leave_update() const {
  return ranks_.is_alone() && exchange_ == nullptr && config_.model.norm != NormKind::kBatch;
}

std::vector<Tensor> Trainer::compute_gradients(const UpdateSize& size, double* largest) {
  const CrossEntropyOptions options{.label_smoothing = config_.training.label_smoothing,
                                    .normalizer = size.targets};
  const Device device = task_.parameters().device();
  const int64_t of_part = exchange_ ? size.micro_batches / exchange_->local_parts() : 0;
  const int64_t first = size.micro_batches * ranks_.rank();
  std::optional<ActivationWatch> watch;
  if (recorder_ && device.is_cpu()) watch.emplace(state_.step);
  std::vector<Tensor> sums;
  for (int64_t i = 0; i < size.micro_batches; ++i) {
    if (i > 0 && can_leave_update() && pending_signal() != 0) return {};
    // Its number in the update, whichever rank computes it.
    const auto number = static_cast<uint32_t>(first + i);
    const auto forward_and_backward = [&] {
      Tape tape({.seed = config_.seed,
                 .step = static_cast<uint32_t>(state_.step),
                 .stream = number * kStreamsPerMicroBatch});
      const CrossEntropy result = task_.loss(i, options);
      sums.push_back(result.sums);
      if (!trained_.empty()) tape.backward(result.loss);
    };
    const bool ends_part = exchange_ && (i + 1) % of_part == 0;
    if (ends_part) exchange_->open_part();
    if (config_.cuda_graphs) {
      as_graph(device, std::ref(forward_and_backward));  // by reference: no allocation
    } else {
      forward_and_backward();
    }
    if (ends_part) exchange_->close_part();
  }
  if (watch && largest != nullptr) *largest = watch->largest();
  return sums;
}

void Trainer::finish_update() {
  if (!launched_) return;
  const double targets = launched_->size.targets;
  const StepResult result = optimizer_.outcome();
  Update update{.step = launched_->step, .grad_norm = result.grad_norm};
  for (HostCopy& copy : launched_->sums) {
    const double* const sums = copy.wait().data<double>();
    update.loss += sums[0] / targets;
    update.nll += sums[1] / targets;
  }
  window_.targets += result.finite ? launched_->size.targets : 0;
  remember(*launched_, update, result.finite);
  launched_.reset();
  if (!result.finite) return report_skipped(update);
  if (ema_) ema_->update();
  state_.skipped_in_a_row = 0;
  watch_loss(update);
  window_.loss += update.loss * targets;
  window_.nll += update.nll * targets;
  window_.grad_norm = update.grad_norm;
}

// An update: its micro-batches forward and backward, then (on a GPU while those still run) the
// counting of the update before, then clipping, the optimizer's step and the zeroing of gradients.
// The averages follow when an update is counted: at once on a CPU, and where a log line, a
// validation or a save is due; otherwise one update later. Log, validation and save come last.
int Trainer::run() {
  end_on_signal(false);
  const TrainingOptions& training = config_.training;
  const double started = steady_seconds() - state_.seconds;
  const bool on_cpu = task_.parameters().device().is_cpu();
  const auto due = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  const auto time_is_up = [&] {
    return training.max_hours > 0 && agreed_seconds_ >= 3600 * training.max_hours;
  };
  const auto is_over = [&] {
    return state_.step >= total_steps_ || patience_is_over() || time_is_up();
  };
  if (training.num_train_epochs > 0) {
    log_.info(concat("num_train_epochs ", training.num_train_epochs, ", ", task_.batches_in_epoch(),
                     " batches in the first: the run ends after update ", total_steps_));
  }
  if (exchange_) log_.info(ranks_and_parts());
  if (state_.step < total_steps_) log_.info("learning rate: " + rates_to_come());
  if (schedule_.warmup() > total_steps_) {
    log_.warn(concat("the warm-up of ", schedule_.warmup(), " updates is longer than the run, ",
                     total_steps_));
  }
  const int64_t first_step = state_.step;
  if (state_.owes_validation && validate()) save(/*best=*/true);
  while (!is_over()) {
    const double before = steady_seconds();
    if (!launch_update()) return stop(pending_signal());
    ++state_.step;
    state_.position = task_.position();
    state_.seconds = steady_seconds() - started;
    if (ranks_.is_alone()) agreed_seconds_ = state_.seconds;
    const bool logged = state_.step == total_steps_ || due(training.logging_steps);
    if (on_cpu || logged) finish_update();
    window_.seconds += steady_seconds() - before;
    report(logged);

    const bool best = (due(training.eval_steps) || is_over()) && validate();
    state_.seconds = steady_seconds() - started;
    if (ranks_.is_alone()) agreed_seconds_ = state_.seconds;
    if (due(training.save_steps) || best || save_is_late_ || is_over()) save(best);

    const int signal = ranks_.is_alone() ? pending_signal() : stop_signal_;
    if (signal != 0) return stop(signal);
  }
  finish_update();
  if (state_.step > first_step && is_not_finite()) {
    diverged("the last update or validation is not finite");
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
  try {
    measure_test();
  } catch (const Interrupted&) {  // the next start measures it
    return stop(pending_signal());
  }
  log_.finish();
  return 0;
}

int Trainer::stop(int signal) {
  save(false);
  const int64_t step = saved_step_;
  const std::string where =
      step == state_.step ? "from here" : concat("from the checkpoint of update ", step);
  log_.info(concat(
      "stopped by ", name_of_signal(signal), " after update ", state_.step,
      step < 0 ? "; nothing was saved" : "; the same command (--resume auto) goes on " + where));
  return 128 + signal;
}

bool Trainer::patience_is_over() const {
  const int64_t patience = config_.training.early_stopping_patience;
  return patience > 0 && state_.validations_without_best >= patience;
}

}  // namespace tapestry
