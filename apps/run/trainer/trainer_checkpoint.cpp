// Saves and loads the checkpoints of a training.
#include <cstring>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/run/trainer/trainer.h"
#include "core/finite.h"

namespace tapestry {
namespace {

// Prefixes of names in optimizer.safetensors: parameters as they are trained, and the averages of
// Ema.
const std::string kTrainedPrefix = "parameter/", kAveragePrefix = "average/";

// Loads the tensors that the file has.
void load_those_of(const TensorReader& file, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (file.find(name) != nullptr) read_finite(file, name, tensor);
  }
}

}  // namespace

// Tensors that do not fit come from a changed config: the message must say how to continue.
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

// The reverse of save(). Older checkpoints may hold all parameters beside the model's. Rank 0 reads
// and sends the tensors to the others.
void Trainer::load_training_tensors(const Resume& resume) {
  const auto is_average = [](const std::string& name) {
    return name.starts_with(kAveragePrefix) || name == "num_updates";
  };
  const TensorReader trained = resume.training().under(kTrainedPrefix);
  const TensorReader averages = resume.training().only(is_average);
  const TensorReader state = resume.training().only([&](const std::string& name) {
    return !name.starts_with(kTrainedPrefix) && !is_average(name);
  });
  const NamedTensors optimizer_state = whole_state();
  const NamedTensors masters = whole_masters();
  if (ranks_.is_first()) {
    if (resume.has_weights_only()) {  // an incident's need not be finite
      for (const auto& [name, var] : params_) resume.model().read(name, var.value());
    } else {
      load_parameters(task_.parameters(), resume.model());
    }
    if (!resume.has_weights_only()) load_those_of(resume.model(), masters);
    load_tensors(trained, parameters_in(trained), Types::kThatFit);
    load_those_of(trained, masters);
    // The weights of an incident come without: its update is computed, not applied.
    if (!resume.has_weights_only()) load_tensors(state, optimizer_state, Types::kSame);
  }
  for (const auto& [name, var] : params_) ranks_.broadcast(var.value());
  share(masters);
  share(optimizer_state);
  if (has_pieces()) {
    exchange_->load_masters(optimizer_, masters);
    exchange_->load_state(optimizer_, optimizer_state);
  }
  if (config_.training.ema_decay <= 0) return;
  begin_averages();
  if (!averages.empty()) load_tensors(averages, ema_->state(), Types::kSame);
  share(ema_->state());
}

void Trainer::protect_earlier() {
  if (folder_ == nullptr) return;
  for (const int64_t step : folder_->steps()) {
    if (step < state_.step) good_step_ = step;
  }
}

// The state of all parameters, whatever part of it this rank has.
NamedTensors Trainer::whole_state() {
  return exchange_ ? exchange_->gather_state(optimizer_) : optimizer_.state();
}

NamedTensors Trainer::whole_masters() {
  return exchange_ ? exchange_->gather_masters(optimizer_) : optimizer_.masters();
}

// Otherwise whole_state() and whole_masters() return the optimizer's own memory.
bool Trainer::has_pieces() const {
  return !ranks_.is_alone() && config_.distributed.shard == Shard::kOptimizer;
}

// Mixed precision: the weights before they were rounded to the model's.
void Trainer::load_first_masters(const TensorReader& weights) {
  const NamedTensors masters = whole_masters();
  load_those_of(weights, masters);
  share(masters);
  if (has_pieces()) exchange_->load_masters(optimizer_, masters);
}

NamedTensors Trainer::parameters_in(const TensorReader& source) const {
  NamedTensors found;
  for (const auto& [name, var] : params_) {
    if (source.find(name) != nullptr) found.emplace_back(name, var.value());
  }
  return found;
}

// Without the warm-up, the average of a short run would be mostly its random beginning.
void Trainer::begin_averages() {
  ema_ = std::make_unique<Ema>(EmaOptions{.decay = config_.training.ema_decay, .warmup = true},
                               trained_, has_pieces() ? NamedTensors() : optimizer_.masters());
}

// The parameters that stay as they are and were rounded to bfloat16 when the training began.
std::set<std::string> Trainer::rounded_parameters() const {
  std::set<std::string> names;
  for (const auto& [name, var] : params_) {
    const StoredTensor* const first = first_weights_.find(name);
    if (var.value().dtype() != DType::kBFloat16 || learns(config_, name) || first == nullptr ||
        first->shape != var.value().shape() || first->type != StoredType::kF32) {
      continue;
    }
    const Tensor exact = Tensor::empty(first->shape, DType::kFloat32);
    first_weights_.read(name, exact);
    const Tensor rounded = var.value().to(Device{}).to(DType::kFloat32);
    const auto bytes = static_cast<size_t>(exact.bytes());
    if (std::memcmp(exact.raw(), rounded.raw(), bytes) != 0) names.insert(name);
  }
  return names;
}

// model.safetensors holds the weights that a user wants: the averages if they are kept. The trained
// values of such a parameter are then saved with the optimizer. In mixed precision it holds the
// float32 weights; for frozen parameters, which have none in memory, they come from the beginning
// of the training. Everything goes straight from its memory into the file.
void Trainer::save(bool best) {
  if (saved_step_ == state_.step && !best) return;
  finish_update();
  save_is_late_ = is_not_finite() && !best;
  if (save_is_late_) return;
  for (const auto& [name, var] : params_) {
    if (first_not_finite(var.value())) diverged(name + " is not finite any more");
  }
  ranks_.communicator().doing("saving");
  expect_equal_parameters();
  const NamedTensors optimizer_state = whole_state(), all_masters = whole_masters();
  saved_step_ = state_.step;
  if (folder_ == nullptr) return;
  const NamedTensors all_averages = ema_ ? ema_->state() : NamedTensors();
  const std::map<std::string, Tensor> averages(all_averages.begin(), all_averages.end());
  const std::map<std::string, Tensor> masters(all_masters.begin(), all_masters.end());
  if (!exact_elsewhere_) exact_elsewhere_ = rounded_parameters();
  std::vector<TensorToWrite> model, training;
  for (const auto& [name, tensor] : optimizer_state) training.emplace_back(name, tensor);
  for (const auto& [name, var] : params_) {
    const auto master = masters.find(name);
    const Tensor& trained = master == masters.end() ? var.value() : master->second;
    const auto average = averages.find(kAveragePrefix + name);
    const Tensor& shown = average == averages.end() ? trained : average->second;
    if (exact_elsewhere_->contains(name)) {
      model.emplace_back(name, shown.shape(), DType::kFloat32, [name, shape = shown.shape(), this] {
        const Tensor exact = Tensor::empty(shape, DType::kFloat32);
        first_weights_.read(name, exact);
        return exact;
      });
      continue;
    }
    model.emplace_back(name, shown.shape(), shown.dtype(), [shown] { return shown; });
    if (average != averages.end()) training.emplace_back(kTrainedPrefix + name, trained);
  }
  for (const auto& [name, tensor] : all_averages) training.emplace_back(name, tensor);

  const std::map<std::string, std::string> files = task_.files();
  CheckpointContent content(files.begin(), files.end());
  content[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(model, {{"format", "tapestry"}}, sink);
  };
  content[kOptimizerFile] = [&](const ByteSink& sink) { write_safetensors(training, {}, sink); };
  content[kTrainerStateFile] = to_json(state_);
  folder_->protect(good_step_);
  folder_->commit(state_.step, content, best, config_.training.save_total_limit,
                  [&](const std::string& problem) { log_.warn(problem); });
}

}  // namespace tapestry
