#include <filesystem>

#include "apps/checkpoint/checkpoint.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/commands/commands.h"
#include "apps/config/sections.h"
#include "apps/run/log.h"
#include "apps/run/signals.h"
#include "apps/run/trainer.h"
#include "core/blas.h"
#include "core/device_runtime.h"
#include "core/parallel.h"
#include "core/text.h"
#include "data/files.h"

namespace tapestry {
namespace {

// What a run starts from: a checkpoint of its own folder, one given by path, or nothing.
std::optional<CheckpointFiles> find_checkpoint(const TrainArguments& arguments, RunFolder& folder,
                                               std::string& note) {
  if (arguments.resume == "auto") {
    auto newest = folder.newest([&](const std::string& reason) { note += reason + "\n"; });
    if (!newest) {
      if (!folder.steps().empty()) {
        fail(ErrorKind::kData, "[train] no checkpoint in ", folder.path(), " is whole:\n", note,
             "Use --resume never with another output_dir to start anew.");
      }
      return std::nullopt;
    }
    return std::move(newest->files);
  }
  if (arguments.resume == "never") {
    if (!folder.steps().empty()) {
      fail(ErrorKind::kConfig, "[train] ", folder.path(), " holds ", folder.steps().size(),
           " checkpoints; --resume never would overwrite them. Choose another output_dir.");
    }
    return std::nullopt;
  }
  const std::string path = resolve_checkpoint(arguments.resume);
  CheckpointFiles files = read_checkpoint(path);
  for (const char* name : {"trainer_state.json", "optimizer.safetensors"}) {
    if (files.contains(name)) continue;
    fail(ErrorKind::kData, "[train] ", path, " has no ", name,
         ": no training goes on from it. Start one from its weights with init_from=", path, '.');
  }
  const int64_t step = parse_trainer_state(files.at("trainer_state.json"), path).step;
  if (!folder.steps().empty() && folder.steps().back() > step) {
    fail(ErrorKind::kConfig, "[train] ", folder.path(), " holds a checkpoint of update ",
         folder.steps().back(), ", later than the ", step, " of ", path,
         "; going on from there would mix two runs. Choose another output_dir.");
  }
  return files;
}

// A model goes on seeing images as it did, unless the config says how.
void keep_format(const ImageFormat& known, ImageFormat& format) {
  if (!format.mean.empty()) return;
  if (!format.size.known()) format.size = known.size;
  if (format.size.channels != known.size.channels) return;
  format.mean = known.mean;
  format.std = known.std;
}

// A resumed classifier keeps its classes: row i of its output is class i, whatever the data would
// call the classes now.
void keep_classes(const DataOptions& data, Config& config) {
  const std::vector<std::string>& labels = data.labels;
  if (!config.data.labels.empty() && config.data.labels != labels) {
    fail(ErrorKind::kConfig,
         "[train] data.labels must be those of the checkpoint, in its order: ", join(labels, ", "),
         '.');
  }
  config.data.labels = labels;
  keep_format(data.image, config.data.image);
}

// The rows of a classifier's last layer belong to its classes.
constexpr const char* kHeadOfClasses = "*classifier.*";

Config config_of(const CheckpointFiles& files) {
  return load_checkpoint_config(files.at("config.json"), "config.json");
}

// What a resumed run is to do otherwise than before, for its log. Its tokenizer cannot change: the
// model knows the ids of the one it began with.
std::string changes_between(const Config& old, const Config& config) {
  const auto before = flat_keys(old), after = flat_keys(config);
  std::string changes;
  const auto note = [&](const std::string& key, const std::string& was, const std::string& is) {
    if (key == "output_dir") return;
    if (key.starts_with("tokenizer.") && key != "tokenizer.path") {
      fail(ErrorKind::kConfig, "[train] ", key, " is ", is, ", the checkpoint's ", was,
           ": a run keeps its tokenizer. Choose another output_dir to start anew.");
    }
    changes += concat(changes.empty() ? "" : ", ", key, ' ', was, " -> ", is);
  };
  for (const auto& [key, value] : after) {
    const auto found = before.find(key);
    if (found == before.end() || found->second != value) {
      note(key, found == before.end() ? "nothing" : found->second, value);
    }
  }
  for (const auto& [key, value] : before) {
    if (!after.contains(key)) note(key, value, "nothing");
  }
  return changes;
}

// A pre-trained model understands its own ids alone: where the config names a tokenizer's file too,
// it must be the same.
void check_own_tokenizer(const Config& config, const ModelFiles& pretrained) {
  if (config.tokenizer.path.empty() || pretrained.tokenizers.source == nullptr) return;
  const std::shared_ptr<const Tokenizer> own = read_tokenizer(config.tokenizer);
  check_same_vocabulary(pretrained.tokenizers, pretrained.folder, {own, own},
                        config.tokenizer.path);
}

}  // namespace

int run_train(const TrainArguments& arguments) {
  Config config = load_config(arguments.config, arguments.overrides);
  const Device device = parse_device(config.device);
  set_num_threads(config.threads);
  check_precision(training_precision(config, device), device);
  install_signal_handlers();
  RunFolder folder(config.output_dir);
  std::string note;
  const std::optional<CheckpointFiles> checkpoint = find_checkpoint(arguments, folder, note);
  TrainerState state;
  TokenizerPair tokenizers;
  std::string changes;
  if (checkpoint) {
    state = parse_trainer_state(checkpoint->at("trainer_state.json"), "trainer_state.json");
    if (!reads_images(config)) tokenizers = load_tokenizers(tokenizer_files(*checkpoint));
    const Config before = config_of(*checkpoint);
    if (config.task->has_classes) keep_classes(before.data, config);
    changes = changes_between(before, config);
  }
  std::optional<ModelFiles> pretrained;
  if (!checkpoint && !config.init_from.empty()) {
    pretrained = read_model_files(config.init_from);
    tokenizers = pretrained->tokenizers;
    check_own_tokenizer(config, *pretrained);
    keep_format(pretrained->config.data.image, config.data.image);
  }
  RunLog log(folder.path(), state.step);
  write_file(folder.file("config.yaml"), to_yaml(config));
  if (!note.empty()) log.warn(note);
  if (!changes.empty()) log.info("changed since the checkpoint: " + changes);
  if (const std::string why = why_no_gpu(); config.device == "auto" && !why.empty()) {
    log.warn(concat("no GPU answers: ", why));
  }
  log.info(concat("device ", device, ", ", num_threads(), " threads, ", blas_description()));
  if (const std::string warning = blas_warning(); !warning.empty()) log.warn(warning);

  const std::unique_ptr<TrainingTask> task = make_task(
      config, tokenizers, state.position, [&](const std::string& message) { log.info(message); });
  const ParamStore& store = task->parameters();
  log.info(concat("model: ", store.elements(), " parameters in ", store.parameters().size(),
                  " tensors"));
  NamedTensors weights;
  if (pretrained) {
    const std::string file = pretrained->folder + "/model.safetensors";
    weights = parse_safetensors(pretrained->tensors, file);
    if (config_of(task->files()).data.labels != pretrained->config.data.labels) {
      std::erase_if(weights,
                    [](const auto& entry) { return matches(entry.first, kHeadOfClasses); });
    }
    log.info("init_from: " + take_over_parameters(store, weights, file));
  }
  if (checkpoint) log.info(concat("resuming after update ", state.step));
  Trainer trainer(config, *task, folder, log, checkpoint ? &*checkpoint : nullptr);
  if (pretrained) trainer.start_from(weights);
  return trainer.run();
}

}  // namespace tapestry
