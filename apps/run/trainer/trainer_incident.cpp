// Records of updates that go wrong, and the replay of one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/run/trainer/trainer.h"
#include "core/base/progress.h"

namespace tapestry {
namespace {

int64_t incidents_in(const std::string& folder) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().filename().string().starts_with(kIncidentPrefix) ? 1 : 0;
  }
  return count;
}

}  // namespace

UpdateRecord Trainer::record_of(const Launched& launched, const Update& update) {
  const double most = config_.training.max_grad_norm;
  const bool clips = most > 0 && update.grad_norm > most;
  UpdateRecord record{.step = launched.step,
                      .seed = config_.seed,
                      .start = launched.start,
                      .micro_batches = launched.size.micro_batches,
                      .tokens = launched.size.tokens,
                      .targets = launched.size.targets,
                      .loss = update.loss,
                      .nll = update.nll,
                      .grad_norm = update.grad_norm,
                      .clip = clips ? most / update.grad_norm : 1,
                      .rate = rate_of(launched.step),
                      .largest_activation = {},
                      .zero_gradients = {},
                      .layers = norms_by_layer(optimizer_.figures())};
  if (optimizer_.figures().empty()) return record;
  record.largest_activation = launched.largest_activation;
  int64_t zeros = 0, elements = 0;
  for (const GradientFigures& of : optimizer_.figures()) {
    if (of.elements > 0) zeros += of.zeros, elements += of.elements;
  }
  record.zero_gradients =
      static_cast<double>(zeros) / static_cast<double>(std::max<int64_t>(1, elements));
  return record;
}

void Trainer::remember(const Launched& launched, const Update& update, bool finite) {
  if (!recorder_) return;
  if (!recorder_->write(record_of(launched, update)) && !recorder_failed_) {
    log_.warn(concat(FlightRecorder::kFile, " cannot be written; the run goes on without it"));
    recorder_failed_ = true;
  }
  // An update that is not finite changes nothing, so the weights are still its initial ones.
  if (!finite && state_.skipped_in_a_row == 0) {
    write_incident(launched,
                   fmt::format("loss {:.6g}, gradient norm {:.6g}", update.loss, update.grad_norm));
  }
}

void Trainer::watch_for_jump(const Launched& launched, const std::vector<Tensor>& sums) {
  if (!recorder_ || !task_.parameters().device().is_cpu()) return;
  double loss = 0;
  for (const Tensor& of_one : sums) loss += of_one.data<double>()[0];
  loss /= launched.size.targets;
  const double usual = recorder_->losses().usual();
  if (!recorder_->losses().jumps(loss, config_.training.loss_jump)) return;
  const std::string what = fmt::format("the loss jumped from about {:.4g} to {:.4g}", usual, loss);
  log_.warn(concat("update ", launched.step, ": ", what));
  write_incident(launched, what);
}

// A third of a checkpoint or less: only what computing the update again needs.
void Trainer::write_incident(const Launched& launched, const std::string& what) {
  const std::string name = concat(kIncidentPrefix, launched.step);
  const std::string path = folder_->file(name);
  TrainerState before = state_;
  before.step = launched.step - 1;
  before.position = launched.start;
  before.skipped_updates = std::min(before.skipped_updates, before.step);
  before.best_step = std::min(before.best_step, before.step);
  before.above_guess_in_a_row = std::min(before.above_guess_in_a_row, before.step);
  std::vector<TensorToWrite> weights;
  for (const auto& [parameter, var] : params_) weights.emplace_back(parameter, var.value());
  const std::map<std::string, std::string> files = task_.files();
  CheckpointContent content(files.begin(), files.end());
  content[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(weights, {{"format", "tapestry"}}, sink);
  };
  content[kTrainerStateFile] = to_json(before);
  content[kIncidentFile] = what + "\n";
  try {
    if (std::filesystem::exists(path) ||
        incidents_in(folder_->path()) >= config_.training.incidents) {
      return;
    }
    write_checkpoint(path, content);
    log_.warn(concat(name, " keeps the weights and the place of update ", launched.step,
                     "; tapestry replay ", config_.output_dir, " --step ", launched.step,
                     " shows more"));
  } catch (const std::exception& error) {  // errors of the file system, too: the training continues
    log_.warn(concat("no ", name, ": ", error.what()));
  }
}

Replayed Trainer::replay(int64_t step) {
  std::optional<Progress> progress;
  if (ranks_.is_first()) progress.emplace("replaying", step - state_.step, "updates");
  const TrainingOptions& training = config_.training;
  // A validation can change the rate of later updates.
  const bool validates = schedule_.type == ScheduleType::kReduceOnPlateau;
  while (state_.step + 1 < step) {
    if (!launch_update()) fail(ErrorKind::kRuntime, "[replay] stopped by a signal.");
    ++state_.step;
    state_.position = task_.position();
    finish_update();
    if (progress) progress->add();
    if (validates && training.eval_steps > 0 && state_.step % training.eval_steps == 0) validate();
  }
  optimizer_.count_figures();
  Launched launched{
      .step = step,
      .start = state_.position,
      .size = agree_on(task_.next_update(training.gradient_accumulation_steps / ranks_.size())),
      .sums = {}};
  Replayed replayed;
  for (int64_t i = 0; i < launched.size.micro_batches; ++i) {
    replayed.texts.push_back(task_.texts(i));
  }
  std::vector<Tensor> sums;
  {
    FirstNotFinite search(params_);
    sums = compute_gradients(launched.size);
    replayed.finding = search.finding();
  }
  if (sums.empty()) fail(ErrorKind::kRuntime, "[replay] stopped by a signal.");
  exchange(sums, 0);
  const double rate = rate_of(step);
  optimizer_.launch(rate, {.max_grad_norm = training.max_grad_norm}, /*gradient_scale=*/1, sums,
                    exchange_ ? exchange_->squares() : Tensor());
  Update update{.step = step, .grad_norm = optimizer_.outcome().grad_norm};
  const double targets = launched.size.targets;
  for (const Tensor& of_one : sums) {
    const Tensor host = of_one.to(Device{});
    update.loss += host.data<double>()[0] / targets;
    update.nll += host.data<double>()[1] / targets;
  }
  replayed.record = record_of(launched, update);
  replayed.record.largest_activation.reset();  // a sample is no figure to compare
  return replayed;
}

}  // namespace tapestry
