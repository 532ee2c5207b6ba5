#include "apps/run/trainer/journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/safetensors.h"
#include "core/allocator.h"
#include "core/device_runtime.h"

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

Journal::Journal(Training& training, Updater& updater) : training_(training), updater_(updater) {
  window_.tokens_before = training.state.tokens;
  const int64_t records = training.config.training.flight_records;
  if (training.folder == nullptr || records <= 0) return;
  recorder_ = std::make_unique<FlightRecorder>(training.folder->file(FlightRecorder::kFile),
                                               records, training.state.step);
  updater.count_figures();
}

void Journal::begin() const {
  const double epochs = training_.config.training.num_train_epochs;
  RunLog& log = training_.log;
  if (epochs > 0) {
    log.info(concat("num_train_epochs ", epochs, ", ", training_.task.batches_in_epoch(),
                    " batches in the first: the run ends after update ", training_.total_steps));
  }
  const std::string parts = updater_.ranks_and_parts();
  if (!parts.empty()) log.info(parts);
  if (training_.state.step < training_.total_steps) {
    log.info("learning rate: " + training_.rates_to_come());
  }
  if (training_.schedule.warmup() > training_.total_steps) {
    log.warn(concat("the warm-up of ", training_.schedule.warmup(),
                    " updates is longer than the run, ", training_.total_steps));
  }
}

void Journal::end() const {
  RunLog& log = training_.log;
  log.info(concat("done: ", training_.state.step, " updates in ",
                  duration_text(training_.state.seconds)));
  if (!training_.config.cuda_graphs || training_.device().is_cpu()) return;
  const GraphStats stats = graph_stats();
  log.info(concat("CUDA graphs: ", stats.launches, " launched, ", stats.graphs, " made"));
  if (!stats.refusal.empty()) log.warn(concat("no graph of every shape: ", stats.refusal));
}

UpdateRecord Journal::record_of(const Update& update) const {
  const TrainingOptions& training = training_.config.training;
  const double most = training.max_grad_norm;
  const double norm = training.clips_by_former_norm ? update.former_norm : update.grad_norm;
  const bool clips = most > 0 && norm > most;
  UpdateRecord record{.step = update.step,
                      .seed = training_.config.seed,
                      .start = update.start,
                      .micro_batches = update.size.micro_batches,
                      .tokens = update.size.tokens,
                      .targets = update.size.targets,
                      .loss = update.loss,
                      .nll = update.nll,
                      .grad_norm = update.grad_norm,
                      .clip = clips ? most / norm : 1,
                      .rate = training_.rate_of(update.step),
                      .largest_activation = {},
                      .zero_gradients = {},
                      .layers = norms_by_layer(updater_.optimizer().figures())};
  if (updater_.optimizer().figures().empty()) return record;
  record.largest_activation = update.largest_activation;
  int64_t zeros = 0, elements = 0;
  for (const GradientFigures& of : updater_.optimizer().figures()) {
    if (of.elements > 0) zeros += of.zeros, elements += of.elements;
  }
  record.zero_gradients =
      static_cast<double>(zeros) / static_cast<double>(std::max<int64_t>(1, elements));
  return record;
}

void Journal::remember(const Update& update) {
  if (!recorder_) return;
  if (!recorder_->write(record_of(update)) && !recorder_failed_) {
    training_.log.warn(
        concat(FlightRecorder::kFile, " cannot be written; the run goes on without it"));
    recorder_failed_ = true;
  }
  // An update that is not finite changes nothing, so the weights are still its initial ones.
  if (!update.finite && update.culprit.empty() && training_.state.skipped_in_a_row == 0) {
    write_incident(update,
                   fmt::format("loss {:.6g}, gradient norm {:.6g}", update.loss, update.grad_norm));
  }
}

void Journal::watch_for_jump(const Update& update, const std::vector<Tensor>& sums) {
  if (!recorder_ || !training_.device().is_cpu()) return;
  double loss = 0;
  for (const Tensor& of_one : sums) loss += of_one.data<double>()[0];
  loss /= update.size.targets;
  const double usual = recorder_->losses().usual();
  if (!recorder_->losses().jumps(loss, training_.config.training.loss_jump)) return;
  const std::string what = fmt::format("the loss jumped from about {:.4g} to {:.4g}", usual, loss);
  training_.log.warn(concat("update ", update.step, ": ", what));
  write_incident(update, what);
}

// A third of a checkpoint or less: only what computing the update again needs.
void Journal::write_incident(const Update& update, const std::string& what) {
  const std::string name = concat(kIncidentPrefix, update.step);
  const std::string path = training_.folder->file(name);
  TrainerState before = training_.state;
  before.step = update.step - 1;
  before.position = update.start;
  before.skipped_updates = std::min(before.skipped_updates, before.step);
  before.best_step = std::min(before.best_step, before.step);
  before.above_guess_in_a_row = std::min(before.above_guess_in_a_row, before.step);
  std::vector<TensorToWrite> weights;
  for (const Parameter& parameter : training_.task.parameters().parameters()) {
    if (parameter.frozen) {
      weights.emplace_back(parameter.name, *parameter.frozen);
    } else {
      weights.emplace_back(parameter.name, parameter.var.value());
    }
  }
  CheckpointContent content = training_.content_of_task();
  content[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(weights, {{"format", "tapestry"}}, sink);
  };
  content[kTrainerStateFile] = to_json(before);
  content[kIncidentFile] = what + "\n";
  try {
    if (std::filesystem::exists(path) ||
        incidents_in(training_.folder->path()) >= training_.config.training.incidents) {
      return;
    }
    write_checkpoint(path, content);
    training_.log.warn(concat(name, " keeps the weights and the place of update ", update.step,
                              "; tapestry replay ", training_.config.output_dir, " --step ",
                              update.step, " shows more"));
  } catch (const std::exception& error) {  // errors of the file system, too: the training continues
    training_.log.warn(concat("no ", name, ": ", error.what()));
  }
}

void Journal::count(const Update& update) {
  if (!update.finite) return;
  window_.targets += update.size.targets;
  window_.loss += update.loss * update.size.targets;
  window_.nll += update.nll * update.size.targets;
  window_.divergence += update.divergence * update.size.targets;
  window_.alignment += update.alignment * update.size.targets;
  window_.grad_norm = update.grad_norm;
}

void Journal::report(bool logged) {
  const TrainerState& state = training_.state;
  const int64_t total = training_.total_steps;
  const double most_hours = training_.config.training.max_hours;
  Line line{.loss = window_.loss / window_.targets,
            .nll = window_.nll / window_.targets,
            .rate = static_cast<double>(state.tokens - window_.tokens_before) / window_.seconds,
            .left = state.seconds / static_cast<double>(std::max<int64_t>(1, state.step)) *
                    static_cast<double>(total - state.step)};
  if (most_hours > 0) line.left = std::min(line.left, 3600 * most_hours - state.seconds);
  training_.log.progress(state.step, total,
                         fmt::format("loss {:.3f}  {:.0f} tokens/s  {} left", line.loss, line.rate,
                                     duration_text(line.left)));
  if (!logged) return;
  write_line(line);
  window_ = {.tokens_before = state.tokens};
  updater_.reset_times();
}

void Journal::write_line(const Line& line) {
  const TrainerState& state = training_.state;
  const double lr = training_.rate_of(state.step);
  const MemoryStats memory = memory_of(training_.device());
  // The error of a point is no probability, and the choice of a text in a batch is no word.
  const bool likelihood = !examples_of(training_.config).of_points();
  const bool perplexity = likelihood && !training_.config.task->can(kEmbedsTexts);
  const std::string nats =
      concat(likelihood ? fmt::format("  nll {:.4f}", line.nll) : "",
             perplexity ? fmt::format("  ppl {:.2f}", std::exp(line.nll)) : "");
  // The mean KL divergence of a target token, in nats.
  const bool taught = !training_.config.training.teacher.empty();
  const double divergence = window_.divergence / window_.targets;
  std::string more = taught ? fmt::format("  teacher {:.4f}", divergence) : "";
  const bool aligned = training_.config.model.alignment_layer > 0;
  const double alignment = window_.alignment / window_.targets;
  if (aligned) more += fmt::format("  alignment {:.4f}", alignment);
  MetricValues of_ranks;
  const std::string ranks = report_ranks(of_ranks);
  training_.log.info(
      fmt::format("update {}  epoch {}  loss {:.4f}{}{}  lr {:.3g}  grad {:.3g}  "
                  "{:.0f} tokens/s{}  {} left",
                  state.step, state.position.epoch, line.loss, nats, more, lr, window_.grad_norm,
                  line.rate, ranks, duration_text(line.left)));
  MetricValues values = {{"epoch", static_cast<double>(state.position.epoch)}, {"loss", line.loss}};
  if (likelihood) values.emplace_back("nll", line.nll);
  if (perplexity) values.emplace_back("ppl", std::exp(line.nll));
  if (taught) values.emplace_back("teacher_divergence", divergence);
  if (aligned) values.emplace_back("alignment_loss", alignment);
  values.insert(values.end(), {{"learning_rate", lr},
                               {"grad_norm", window_.grad_norm},
                               {"tokens_per_s", line.rate},
                               {"tokens", static_cast<double>(state.tokens)},
                               {"skipped_updates", static_cast<double>(state.skipped_updates)},
                               {"peak_bytes", static_cast<double>(memory.peak_bytes)},
                               {"seconds", state.seconds}});
  values.insert(values.end(), of_ranks.begin(), of_ranks.end());
  training_.log.metrics(state.step, "train", values);
}

std::string Journal::report_ranks(MetricValues& line) const {
  const Updater::Times& times = updater_.times();
  const std::vector<double>& computed = times.computed;
  if (computed.empty()) return "";
  const auto slowest = std::max_element(computed.begin(), computed.end());
  const auto rank = static_cast<int>(slowest - computed.begin());
  const double mean =
      std::accumulate(computed.begin(), computed.end(), 0.) / training_.ranks.size();
  const double share = times.waited / window_.seconds, over = *slowest / mean;
  line.insert(line.end(), {{"ranks", training_.ranks.size()},
                           {"exchange_share", share},
                           {"slowest_rank", rank},
                           {"slowest_over_mean", over}});
  return fmt::format("  exchange {:.1f} %  slowest {} +{:.1f} %", 100 * share,
                     training_.ranks.name_of(rank), 100 * (over - 1));
}

}  // namespace tapestry
