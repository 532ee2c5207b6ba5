#include "apps/run/trainer/training.h"

#include <fmt/format.h>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/run/start.h"
#include "apps/run/updates.h"

namespace tapestry {
namespace {

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

}  // namespace

Training::Training(const Config& config, TrainingTask& task, Ranks& ranks, RunFolder* folder,
                   RunLog& log, Resume& resume)
    : config(config),
      task(task),
      ranks(ranks),
      folder(folder),
      log(log),
      total_steps(updates_of(config.training, task, resume)),
      schedule(schedule_until(config.schedule, total_steps)),
      params(task.parameters().named()),
      trained(trained_parameters(params, config)),
      state(resume.state()) {
  state.counts_anew = false;
  state.parts = std::max<int64_t>(1, config.distributed.parts);
}

double Training::rate_of(int64_t step) const {
  const double rate =
      state.cooldown.factor(step) * learning_rate(schedule, config.learning_rate, step);
  return schedule.type == ScheduleType::kReduceOnPlateau ? rate * state.plateau.scale : rate;
}

std::string Training::rates_to_come() const {
  std::string text;
  for (const int64_t step : turning_points(schedule, state.step + 1)) {
    text += fmt::format("{}{:.3g} at update {}", text.empty() ? "" : ", ", rate_of(step), step);
  }
  if (schedule.type == ScheduleType::kReduceOnPlateau) {
    text += fmt::format("; times {} after more than {} validations without a better {}",
                        config.plateau.factor, config.plateau.patience, config.training.lr_metric);
  }
  if (config.training.cooldown_share > 0 && !state.cooldown.has_begun()) {
    text += fmt::format("; falls to 0 in the last {:.3g} % of {:.3g} h",
                        100 * config.training.cooldown_share, config.training.max_hours);
  }
  return text;
}

CheckpointContent Training::content_of_task() const {
  const std::map<std::string, std::string> files = task.files();
  CheckpointContent content(files.begin(), files.end());
  if (const NamedTensors kept = task.kept(); !kept.empty()) {
    content[kTaskFile] = [kept](const ByteSink& sink) {
      std::vector<TensorToWrite> tensors;
      for (const auto& [name, tensor] : kept) tensors.emplace_back(name, tensor);
      write_safetensors(tensors, {}, sink);
    };
  }
  return content;
}

void Training::share(const NamedTensors& tensors) const {
  for (const auto& [name, tensor] : tensors) ranks.broadcast(tensor);
}

void Training::expect_equal_parameters() const {
  if (!ranks.is_alone()) ranks.expect_equal("the parameters", checksum_of(task.parameters()));
}

}  // namespace tapestry
