#include "apps/run/trainer/trainer.h"

#include <fmt/format.h>

#include "apps/run/signals.h"
#include "core/base/clock.h"
#include "core/base/interruption.h"
#include "core/base/progress.h"

namespace tapestry {

Trainer::Trainer(const Config& config, TrainingTask& task, Ranks& ranks, RunFolder* folder,
                 RunLog& log, Resume&& resume)
    : training_(config, task, ranks, folder, log, resume),
      state_(training_.state),
      updater_(training_),
      keeper_(training_, updater_, resume),
      divergence_(training_, keeper_),
      validator_(training_, updater_),
      journal_(training_, updater_) {
  if (state_.cooldown.hours != config.training.max_hours) state_.cooldown = {};
  // Open files of a checkpoint that is deleted later would keep their place on the disk.
  const Resume used = std::move(resume);
  training_.expect_equal_parameters();
  // The task knows facts about the data: classes, the format of images. All is taken over now: a
  // start that is refused leaves the config that the checkpoints have.
  if (folder != nullptr) folder->write("config.yaml", to_yaml(task.config()));
}

// An update: its micro-batches forward and backward, then (on a GPU while those still run) the
// counting of the update before, then clipping, the optimizer's step and the zeroing of gradients.
// The averages follow when an update is counted: at once on a CPU, and where a log line, a
// validation or a save is due; otherwise one update later. Log, validation and save come last.
int Trainer::run(int64_t stop_at) {
  end_on_signal(false);
  const TrainingOptions& options = training_.config.training;
  const double started = steady_seconds() - state_.seconds;
  const bool on_cpu = training_.device().is_cpu();
  const auto due = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  journal_.begin();
  const int64_t first_step = state_.step;
  if (state_.owes_validation && validate()) save(/*best=*/true);
  while (!is_over()) {
    if (state_.step >= stop_at) {
      pause(stop_at, first_step);
      return 0;
    }
    const double before = steady_seconds();
    if (!launch_update()) return stop(pending_signal());
    ++state_.step;
    state_.position = training_.task.position();
    state_.seconds = steady_seconds() - started;
    const bool logged = state_.step == training_.total_steps || due(options.logging_steps);
    if (on_cpu || logged) finish_update();
    journal_.passed(steady_seconds() - before);
    journal_.report(logged);

    const bool cools = begin_cooldown_in_time();
    const bool best = (due(options.eval_steps) || is_over()) && validate();
    state_.seconds = steady_seconds() - started;
    if (due(options.save_steps) || best || save_is_late_ || cools || is_over()) save(best);
    if (const int signal = updater_.agreed_signal(); signal != 0) return stop(signal);
  }
  finish_update();
  if (state_.step > first_step && divergence_.is_not_finite()) {
    divergence_.fail_with("the last update or validation is not finite");
  }
  try {
    finish();
  } catch (const Interrupted&) {  // the next start measures the test set
    return stop(pending_signal());
  }
  return 0;
}

bool Trainer::is_over() const {
  if (state_.step >= training_.total_steps || validator_.patience_is_over()) return true;
  if (state_.cooldown.has_begun()) return state_.step >= state_.cooldown.end();
  const double most_hours = training_.config.training.max_hours;
  return most_hours > 0 && updater_.agreed_seconds() >= 3600 * most_hours;
}

// By the clock that all ranks agree on. A replay needs the checkpoint that is saved here.
bool Trainer::begin_cooldown_in_time() {
  const TrainingOptions& options = training_.config.training;
  const double most = 3600 * options.max_hours, now = updater_.agreed_seconds();
  const double left = most - now;
  if (options.cooldown_share == 0 || state_.cooldown.has_begun() || now == 0 || left <= 0 ||
      left > options.cooldown_share * most) {
    return false;
  }
  const double updates = left / now * static_cast<double>(state_.step);
  state_.cooldown = {state_.step, std::max<int64_t>(1, static_cast<int64_t>(updates)),
                     options.max_hours};
  training_.log.info(concat("the rate falls to 0 until update ", state_.cooldown.end()));
  return true;
}

void Trainer::finish() {
  if (validator_.patience_is_over()) {
    training_.log.info(
        concat("stopped early: no better ", training_.config.training.metric_for_best_model,
               " than ", fmt::format("{:.2f}", state_.best_metric), " of update ", state_.best_step,
               " in ", state_.validations_without_best, " validations"));
  }
  journal_.end();
  validator_.measure_test();
  training_.log.finish();
}

bool Trainer::launch_update() {
  return updater_.launch([&](const Update& update, const std::vector<Tensor>& sums) {
    finish_update();
    journal_.watch_for_jump(update, sums);
  });
}

void Trainer::finish_update() {
  const std::optional<Update> update = updater_.finish();
  if (!update) return;
  journal_.remember(*update);
  divergence_.watch(*update);
  journal_.count(*update);
}

bool Trainer::validate() {
  finish_update();
  const std::optional<Validator::Outcome> outcome = validator_.validate();
  if (!outcome) return false;
  divergence_.validated(outcome->finite);
  return outcome->best;
}

void Trainer::save(bool best) {
  if (keeper_.saved_step() == state_.step && !best) return;
  finish_update();
  save_is_late_ = divergence_.is_not_finite() && !best;
  if (save_is_late_) return;
  divergence_.check_parameters();
  keeper_.save(best);
}

int Trainer::stop(int signal) {
  save(false);
  training_.log.info(concat("stopped by ", name_of_signal(signal), " after update ", state_.step,
                            "; the same command (--resume auto) ", from_where()));
  return 128 + signal;
}

void Trainer::pause(int64_t stop_at, int64_t first) {
  save(false);
  const std::string what =
      first < stop_at
          ? concat("stopped after update ", state_.step, " as it was asked to")
          : concat("nothing is trained: update ", first, " is there, --stop-at is ", stop_at);
  training_.log.info(concat(what, "; the same command without --stop-at ", from_where()));
}

// A save waits while the last update or validation is not finite.
std::string Trainer::from_where() const {
  const int64_t step = keeper_.saved_step();
  if (step < 0) return "begins anew, because nothing was saved";
  if (step == state_.step) return "goes on from here";
  return concat("goes on from the checkpoint of update ", step);
}

Replayed Trainer::replay(int64_t step) {
  std::optional<Progress> progress;
  if (training_.ranks.is_first()) progress.emplace("replaying", step - state_.step, "updates");
  // A validation can change the rate of later updates.
  const bool validates = training_.schedule.type == ScheduleType::kReduceOnPlateau;
  const int64_t eval_steps = training_.config.training.eval_steps;
  while (state_.step + 1 < step) {
    if (!launch_update()) fail(ErrorKind::kRuntime, "[replay] stopped by a signal.");
    ++state_.step;
    state_.position = training_.task.position();
    finish_update();
    if (progress) progress->add();
    if (validates && eval_steps > 0 && state_.step % eval_steps == 0) validate();
  }
  updater_.count_figures();
  Replayed replayed;
  Update update = updater_.begin();
  for (int64_t i = 0; i < update.size.micro_batches; ++i) {
    replayed.texts.push_back(training_.task.texts(i));
  }
  std::vector<Tensor> sums;
  {
    FirstNotFinite search(training_.params);
    sums = updater_.compute_gradients(update.size);
    replayed.finding = search.finding();
  }
  if (sums.empty()) fail(ErrorKind::kRuntime, "[replay] stopped by a signal.");
  updater_.exchange(sums, 0);
  updater_.step(update, sums);
  update.grad_norm = updater_.optimizer().outcome().grad_norm;
  for (const Tensor& of_one : sums) {
    const Tensor host = of_one.to(Device{});
    update.loss += host.data<double>()[0] / update.size.targets;
    update.nll += host.data<double>()[1] / update.size.targets;
  }
  replayed.record = journal_.record_of(update);
  replayed.record.largest_activation.reset();  // a sample is no figure to compare
  return replayed;
}

}  // namespace tapestry
