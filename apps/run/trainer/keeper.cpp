#include "apps/run/trainer/keeper.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/run/updates.h"
#include "nn/layers/adapter.h"

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

NamedTensors values_of(const NamedVars& params) {
  NamedTensors values;
  for (const auto& [name, var] : params) values.emplace_back(name, var.value());
  return values;
}

}  // namespace

Keeper::Keeper(Training& training, Updater& updater, const Resume& resume)
    : training_(training), updater_(updater) {
  const Config& config = training_.config;
  if (resume.goes_on()) {
    saved_step_ = training_.state.step;
    protect_earlier();
    load(resume);
  } else {
    if (!config.init_from.empty()) training_.share(values_of(training_.params));
    load_first_masters(resume.model());
    if (config.training.ema_decay > 0) updater_.begin_averages();
  }
  training_.task.begin(/*anew=*/!resume.goes_on());
  const bool keeps_rounded = std::ranges::any_of(training_.params, [&](const auto& parameter) {
    return parameter.second.value().dtype() == DType::kBFloat16 && !learns(config, parameter.first);
  });
  if (keeps_rounded) first_weights_ = resume.model();
}

// Tensors that do not fit come from a changed config: the message must say how to continue.
void Keeper::load(const Resume& resume) {
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
void Keeper::load_training_tensors(const Resume& resume) {
  const auto is_average = [](const std::string& name) {
    return name.starts_with(kAveragePrefix) || name == "num_updates";
  };
  const TensorReader trained = resume.training().under(kTrainedPrefix);
  const TensorReader averages = resume.training().only(is_average);
  const TensorReader state = resume.training().only([&](const std::string& name) {
    return !name.starts_with(kTrainedPrefix) && !is_average(name);
  });
  const NamedTensors optimizer_state = updater_.whole_state();
  const NamedTensors masters = updater_.whole_masters();
  if (training_.ranks.is_first()) {
    if (resume.has_weights_only()) {  // an incident's need not be finite
      for (const Parameter& parameter : training_.task.parameters().parameters()) {
        if (parameter.frozen) {
          read_parameter(resume.model(), parameter);
        } else {
          resume.model().read(parameter.name, parameter.var.value());
        }
      }
    } else {
      load_parameters(training_.task.parameters(), resume.model());
    }
    if (!resume.has_weights_only()) load_those_of(resume.model(), masters);
    load_tensors(trained, parameters_in(trained), Types::kThatFit);
    load_those_of(trained, masters);
    // The weights of an incident come without: its update is computed, not applied.
    if (!resume.has_weights_only()) load_tensors(state, optimizer_state, Types::kSame);
  }
  for (const auto& [name, var] : training_.params) training_.ranks.broadcast(var.value());
  const NamedTensors kept = training_.task.kept();
  if (training_.ranks.is_first() && !kept.empty()) {
    load_tensors(resume.task(), kept, Types::kSame);
  }
  training_.share(kept);
  training_.share(masters);
  training_.share(optimizer_state);
  updater_.load_pieces(masters, &optimizer_state);
  if (training_.config.training.ema_decay <= 0) return;
  updater_.begin_averages();
  if (!averages.empty()) load_tensors(averages, updater_.averages()->state(), Types::kSame);
  training_.share(updater_.averages()->state());
}

// Protects the checkpoint before the one that a run resumes, until that one is proved good.
void Keeper::protect_earlier() {
  if (training_.folder == nullptr) return;
  for (const int64_t step : training_.folder->steps()) {
    if (step < training_.state.step) good_step_ = step;
  }
}

// The lengths of the rows of a matrix before it was rounded, and of its adapter if it has one.
void Keeper::set_first_lengths(const TensorReader& weights, const std::string& magnitude,
                               const Tensor& lengths) const {
  const std::string layer = magnitude.substr(0, magnitude.rfind('.') + 1);
  const auto read = [&](const std::string& name) -> std::optional<Tensor> {
    const StoredTensor* const stored = weights.find(name);
    if (stored == nullptr) return std::nullopt;
    const Tensor values = Tensor::empty(stored->shape, lengths.dtype());
    weights.read(name, values);
    return values;
  };
  const std::optional<Tensor> own = read(layer + "weight");
  // A base in a format of its own has other numbers, and the parameter has their lengths.
  if (!own || training_.config.training.lora_base) return;
  const Tensor whole = with_adapter(*own, layer + "weight", training_.config.lora, read);
  lengths.copy_from(row_lengths(whole).to(lengths.device()));
}

// Mixed precision: the weights before they were rounded to the model's.
void Keeper::load_first_masters(const TensorReader& weights) {
  const NamedTensors masters = updater_.whole_masters();
  load_those_of(weights, masters);
  for (const auto& [name, master] : masters) {
    if (weights.find(name) == nullptr && is_magnitude(name))
      set_first_lengths(weights, name, master);
  }
  training_.share(masters);
  updater_.load_pieces(masters, nullptr);
}

NamedTensors Keeper::parameters_in(const TensorReader& source) const {
  NamedTensors found;
  for (const auto& [name, var] : training_.params) {
    if (source.find(name) != nullptr) found.emplace_back(name, var.value());
  }
  return found;
}

// The parameters that stay as they are and were rounded to bfloat16 when the training began.
std::set<std::string> Keeper::rounded_parameters() const {
  std::set<std::string> names;
  for (const auto& [name, var] : training_.params) {
    const StoredTensor* const first = first_weights_.find(name);
    if (var.value().dtype() != DType::kBFloat16 || learns(training_.config, name) ||
        first == nullptr || first->shape != var.value().shape() ||
        first->type != StoredType::kF32) {
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

void Keeper::save(bool best) {
  training_.ranks.communicator().doing("saving");
  training_.expect_equal_parameters();
  const NamedTensors optimizer_state = updater_.whole_state(), masters = updater_.whole_masters();
  saved_step_ = training_.state.step;
  if (training_.folder == nullptr) return;
  const Tensors tensors = tensors_to_write(optimizer_state, masters);
  CheckpointContent content = training_.content_of_task();
  content[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(tensors.model, {{"format", "tapestry"}}, sink);
  };
  content[kOptimizerFile] = [&](const ByteSink& sink) {
    write_safetensors(tensors.training, {}, sink);
  };
  content[kTrainerStateFile] = to_json(training_.state);
  training_.folder->protect(good_step_);
  training_.folder->commit(saved_step_, content, best, training_.config.training.save_total_limit,
                           [&](const std::string& problem) { training_.log.warn(problem); });
}

// model.safetensors holds the weights that a user wants: the averages if they are kept. The trained
// values of such a parameter are then saved with the optimizer. In mixed precision it holds the
// float32 weights; for frozen parameters, which have none in memory, they come from the beginning
// of the training. Everything goes straight from its memory into the file.
Keeper::Tensors Keeper::tensors_to_write(const NamedTensors& optimizer_state,
                                         const NamedTensors& all_masters) {
  const Ema* const ema = updater_.averages();
  const NamedTensors all_averages = ema != nullptr ? ema->state() : NamedTensors();
  const std::map<std::string, Tensor> averages(all_averages.begin(), all_averages.end());
  const std::map<std::string, Tensor> masters(all_masters.begin(), all_masters.end());
  if (!exact_elsewhere_) exact_elsewhere_ = rounded_parameters();
  Tensors tensors;
  auto& [model, training] = tensors;
  for (const auto& [name, tensor] : optimizer_state) training.emplace_back(name, tensor);
  for (const auto& [name, var] : training_.params) {
    if (const auto& frozen = training_.task.parameters().at(name).frozen) {
      model.emplace_back(name, *frozen);
      continue;
    }
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
  return tensors;
}

}  // namespace tapestry
