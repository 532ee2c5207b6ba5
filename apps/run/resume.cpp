#include "apps/run/resume.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/parameters.h"
#include "apps/interop/huggingface_import.h"
#include "core/base/pattern.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

// The newest checkpoint of the folder. `passed_over` gets why newer ones are not taken.
std::optional<Checkpoint> newest_of(const RunFolder& folder, std::string& passed_over) {
  std::optional<Checkpoint> newest =
      folder.newest([&](const std::string& reason) { passed_over += reason + "\n"; });
  if (!newest && !folder.steps().empty()) {
    fail(ErrorKind::kData, "[train] no checkpoint in ", folder.path(), " is whole:\n", passed_over,
         "Use --resume never with another output_dir to start anew.");
  }
  return newest;
}

std::optional<Checkpoint> find_checkpoint(const std::string& how, const RunFolder& folder,
                                          std::string& passed_over) {
  if (how == "auto") return newest_of(folder, passed_over);
  if (how == "never") {
    if (!folder.steps().empty()) {
      fail(ErrorKind::kConfig, "[train] ", folder.path(), " holds ", folder.steps().size(),
           " checkpoints; --resume never would overwrite them. Choose another output_dir.");
    }
    return std::nullopt;
  }
  Checkpoint given(resolve_checkpoint(how));
  given.open_all();
  return given;
}

void check_whole(const Checkpoint& checkpoint) {
  const std::string& path = checkpoint.folder();
  for (const char* name : {kTrainerStateFile, kOptimizerFile, kModelFile, kConfigFile}) {
    if (checkpoint.contains(name)) continue;
    fail(ErrorKind::kData, "[train] ", path, " has no ", name,
         ": no training goes on from it. Start one from its weights with init_from=", path, '.');
  }
}

// Detects a renamed folder, or files of two checkpoints.
void check_step(const Checkpoint& checkpoint, const TrainerState& state) {
  const std::string name = std::filesystem::canonical(checkpoint.folder()).filename();
  constexpr std::string_view kPrefix = "checkpoint-";
  const bool is_numbered =
      name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
      name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
  if (!is_numbered || name == concat(kPrefix, state.step)) return;
  fail(ErrorKind::kData, "[train] ", checkpoint.folder(), " is of update ", state.step, " by its ",
       kTrainerStateFile, '.');
}

void check_latest(const RunFolder& folder, int64_t step, const std::string& path) {
  const std::vector<int64_t> steps = folder.steps();
  if (steps.empty() || steps.back() <= step) return;
  fail(ErrorKind::kConfig, "[train] ", folder.path(), " holds a checkpoint of update ",
       steps.back(), ", later than the ", step, " of ", path,
       "; going on from there would mix two runs. Choose another output_dir.");
}

// A resumed model sees images as before, unless the config says otherwise.
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

// The marks of a built-in template belong to the tokenizer that was learnt for it, whichever
// template is chosen now.
void keep_marks(const TokenizerOptions& before, TokenizerOptions& tokenizer) {
  const auto others = [](std::vector<std::string> symbols) {
    for (const BuiltInTemplate& one : built_in_templates()) {
      std::erase_if(symbols, [&](const std::string& symbol) {
        return std::ranges::find(one.symbols, symbol) != one.symbols.end();
      });
    }
    return symbols;
  };
  if (others(before.user_symbols) == others(tokenizer.user_symbols)) {
    tokenizer.user_symbols = before.user_symbols;
  }
}

// The rows of a classifier's last layer belong to its classes.
constexpr const char* kHeadOfClasses = "*classifier.*";

// The classes are known when the task has read its data.
std::vector<std::string> labels_of(const TrainingTask& task) {
  return load_checkpoint_config(task.files().at(kConfigFile), kConfigFile).data.labels;
}

// The differences of a resumed run's config, for its log. Its tokenizer cannot change: the model
// knows the ids of its first one.
std::string changes_between(const Config& old, const Config& config) {
  if (old.task != config.task) {
    fail(ErrorKind::kConfig, "[train] the config's task is ", config.task->name,
         ", the checkpoint's ", old.task->name, ". Choose another output_dir to start anew.");
  }
  const auto before = flat_keys(old), after = flat_keys(config);
  std::string changes;
  const auto note = [&](const std::string& key, const std::string& was, const std::string& is) {
    // The Trainer compares parts; the rest of the section changes no update.
    if (key == "output_dir" || key.starts_with("distributed.")) return;
    if (key.starts_with("tokenizer.") && !key.ends_with(".path")) {
      fail(ErrorKind::kConfig, "[train] ", key, " is ", is, ", the checkpoint's ", was,
           ": a run keeps its tokenizer. Choose another output_dir to start anew.");
    }
    if (key == "training.lora.base" && was != "nothing" && is != "nothing") {
      fail(ErrorKind::kConfig, "[train] ", key, " is ", is, ", the checkpoint's ", was,
           ": a run keeps its base. Choose another output_dir to start anew.");
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

// Model keys other than sizes change the meaning of its parameters.
std::string model_changes(const Config& old, const Config& config) {
  const auto before = flat_keys(old), after = flat_keys(config);
  std::string changes;
  for (const auto& [key, value] : after) {
    const auto found = before.find(key);
    const bool counts = key.starts_with("model.") && key.find("dropout") == std::string::npos &&
                        !key.starts_with("model.initializer") && key != "model.recompute";
    if (!counts || found == before.end() || found->second == value) continue;
    changes += concat(changes.empty() ? "" : ", ", key, ' ', found->second, " -> ", value);
  }
  return changes;
}

// Adapters learn beside frozen parameters: none of those may be fresh, and no earlier adapter may
// be left out.
void check_adapters(const ParamStore& store, const TensorReader& source, const Config& config) {
  for (const StoredTensor& stored : source.tensors()) {
    if (!is_adapter(stored.name) || store.contains(stored.name)) continue;
    fail(ErrorKind::kConfig, "[init_from] ", source.name(), " has ", stored.name,
         ", which training.lora.target leaves out.");
  }
  if (config.lora.rank == 0) return;
  for (const Parameter& parameter : store.parameters()) {
    if (source.find(parameter.name) != nullptr || learns(config, parameter.name)) continue;
    if (is_magnitude(parameter.name)) continue;
    fail(ErrorKind::kConfig, "[init_from] ", parameter.name, " is not in ", source.name(),
         " and would never learn: name it in training.lora.modules_to_save.");
  }
}

// Makes the config describe the tokenizer of a Hugging Face folder.
void tell_tokenizer(const std::string& folder, ModelFiles& files) {
  if (files.tokenizers.source == nullptr) return;
  const std::string json = folder + "/tokenizer.json";
  TokenizerOptions& options = files.config.tokenizer;
  if (std::filesystem::exists(json)) {
    options.type = "huggingface";
    options.path = json;
  } else {
    options.vocab_size = files.tokenizers.source->vocab_size();
    options.share = files.tokenizers.shared();
  }
}

// The keys that say how training texts vary are no part of a model's tokenizer.
bool is_of_sampling(const std::string& key) { return key.starts_with("tokenizer.sampling."); }

bool same_tokenizer(const Config& a, const Config& b) {
  const auto keys = flat_keys(a), others = flat_keys(b);
  const auto of_tokenizer = [](const std::map<std::string, std::string>& all) {
    std::map<std::string, std::string> own(all.lower_bound("tokenizer."),
                                           all.lower_bound("tokenizer/"));
    std::erase_if(own, [](const auto& entry) { return is_of_sampling(entry.first); });
    return own;
  };
  return of_tokenizer(keys) == of_tokenizer(others);
}

// The key of how parameters are drawn, where it is neither the other model's nor the usual one; ""
// if there is none.
std::string initializer_asked_for(const Config& theirs, const Config& config) {
  const auto before = flat_keys(theirs), usual = flat_keys(default_config(*config.task));
  for (const auto& [key, value] : flat_keys(config)) {
    if (!key.starts_with("model.initializer")) continue;
    const auto is = [&, &key = key, &value = value](const auto& keys) {
      const auto found = keys.find(key);
      return found != keys.end() && found->second == value;
    };
    if (!is(before) && !is(usual)) return concat(key, ": ", value);
  }
  return "";
}

// A model keeps its tokenizer, so the config must describe that one. A key that contradicts it
// would have no effect; only defaults are replaced silently.
void keep_tokenizer(const Config& known, const std::string& path, Config& config) {
  const auto theirs = flat_keys(known), usual = flat_keys(default_config(*config.task));
  const auto is = [](const std::map<std::string, std::string>& keys, const auto& entry) {
    const auto found = keys.find(entry.first);
    return found != keys.end() && found->second == entry.second;
  };
  for (const auto& entry : flat_keys(config)) {
    const auto& [key, value] = entry;
    if (!key.starts_with("tokenizer.") || key == "tokenizer.path" || is_of_sampling(key)) continue;
    if (is(theirs, entry) || is(usual, entry)) continue;
    const auto found = theirs.find(key);
    fail(ErrorKind::kConfig, "[init_from] ", key, " is ", value, ", but the model of ", path,
         " keeps its tokenizer, ",
         found == theirs.end() ? "which has no such key" : "of which it is " + found->second,
         ". Leave the key out.");
  }
  TokenizerOptions kept = known.tokenizer;
  if (!config.tokenizer.path.empty()) kept.path = config.tokenizer.path;
  kept.mask_piece = config.tokenizer.mask_piece;
  kept.sentinels = config.tokenizer.sentinels;
  config.tokenizer = std::move(kept);
}

// A pre-trained model understands only its own ids: if the config names a tokenizer's file, it must
// be the same.
void check_own_tokenizer(const Config& config, const ModelFiles& pretrained) {
  const TokenizerOptions& options = config.tokenizer;
  if (pretrained.tokenizers.source == nullptr) return;
  if (!options.path.empty()) {
    const std::shared_ptr<const Tokenizer> own = read_tokenizer(options);
    check_same_vocabulary(pretrained.tokenizers, pretrained.folder, {own, own}, options.path);
  } else if (!options.source_path.empty()) {
    const TokenizerPair own{read_tokenizer(options, options.source_path),
                            read_tokenizer(options, options.target_path)};
    check_same_vocabulary(pretrained.tokenizers, pretrained.folder, own,
                          concat(options.source_path, " and ", options.target_path));
  }
}

}  // namespace

Resume::Resume(const std::string& how, const RunFolder& folder, Config& config) {
  std::optional<Checkpoint> found = find_checkpoint(how, folder, passed_over_);
  const std::string path = found ? found->folder() : "";
  if (found) check_whole(*found);
  begin(std::move(found), config);
  follow_data(config);
  if (!path.empty() && how != "auto") check_latest(folder, state_.step, path);
}

Resume::Resume(std::optional<Checkpoint> found, Config& config) {
  if (found && !found->contains(kIncidentFile)) check_whole(*found);
  begin(std::move(found), config);
}

void Resume::begin(std::optional<Checkpoint> found, Config& config) {
  if (found) {
    const ByteSource& state = found->open(kTrainerStateFile);
    state_ = parse_trainer_state(bytes_of(state), state.name);
    check_step(*found, state_);
    go_on(*std::move(found), config);
  } else if (!config.init_from.empty()) {
    const std::string& path = config.init_from;
    if (!interop::is_foreign_model(path)) return begin_with(read_model_files(path), config);
    ModelFiles theirs = interop::model_files(interop::import_folder(path), path, true);
    tell_tokenizer(path, theirs);
    begin_with(std::move(theirs), config);
  }
}

std::vector<std::string> Resume::facts() const {
  std::vector<std::string> facts = {goes_on_ ? "goes on" : "begins", to_json(state_)};
  if (tokenizers_.source == nullptr) return facts;
  for (const auto& [name, bytes] : tokenizers_.files()) facts.insert(facts.end(), {name, bytes});
  return facts;
}

Resume::Resume(const std::vector<std::string>& facts)
    : goes_on_(facts.at(0) == "goes on"), state_(parse_trainer_state(facts.at(1), "of rank 0")) {
  std::map<std::string, std::string> files;
  for (size_t i = 2; i + 1 < facts.size(); i += 2) files[facts[i]] = facts[i + 1];
  if (!files.empty()) tokenizers_ = load_tokenizers(files);
}

void Resume::go_on(Checkpoint checkpoint, Config& config) {
  goes_on_ = true;
  if (const auto files = tokenizer_files(checkpoint);
      examples_of(config).of_text() || !files.empty()) {
    tokenizers_ = load_tokenizers(files);
  }
  const Config before = config_of(checkpoint);
  if (examples_of(config).has_classes) keep_classes(before.data, config);
  if (examples_of(config).talks) keep_marks(before.tokenizer, config.tokenizer);
  // A run from before the key keeps its tokenizer.
  if (before.one_normalization && config.tokenizer.target_normalization ==
                                      default_config(*config.task).tokenizer.target_normalization) {
    config.tokenizer.target_normalization = before.tokenizer.target_normalization;
  }
  // Another machine might choose otherwise.
  if (config.auto_dtype) {
    config.auto_dtype = false;
    config.dtype = before.dtype;
    config.mixed = before.mixed;
  }
  // The same budget means the same choice, whatever a plan would choose today, so the bits stay the
  // same.
  if (!config.training.memory_budget.empty() &&
      config.training.memory_budget == before.training.memory_budget) {
    config.training.splits = before.training.splits;
    config.model.recompute = before.model.recompute;
    keeps_budget_ = true;
  }
  if (!config.init_from.empty() && examples_of(config).of_text() &&
      !same_tokenizer(before, config)) {
    keep_tokenizer(before, checkpoint.folder(), config);
  }
  changes_ = changes_between(before, config);
  before_ = before;
  model_ = TensorReader(checkpoint.open(kModelFile));
  if (checkpoint.contains(kTaskFile)) task_ = TensorReader(checkpoint.open(kTaskFile));
  weights_only_ = checkpoint.contains(kIncidentFile);
  if (!weights_only_) training_ = TensorReader(checkpoint.open(kOptimizerFile));
}

void Resume::begin_with(ModelFiles pretrained, Config& config) {
  check_own_tokenizer(config, pretrained);
  if (pretrained.tokenizers.source != nullptr) {
    keep_tokenizer(pretrained.config, pretrained.folder, config);
  }
  keep_format(pretrained.config.data.image, config.data.image);
  tokenizers_ = std::move(pretrained.tokenizers);
  old_labels_ = std::move(pretrained.config.data.labels);
  model_ = std::move(pretrained.tensors);
  changes_ = model_changes(pretrained.config, config);
  asked_initializer_ = initializer_asked_for(pretrained.config, config);
  const bool adapted = std::any_of(model_.tensors().begin(), model_.tensors().end(),
                                   [](const auto& tensor) { return is_adapter(tensor.name); });
  const LoraOptions &before = pretrained.config.lora, &now = config.lora;
  if (adapted && (now.rank != before.rank || now.alpha != before.alpha)) {
    fail(ErrorKind::kConfig, "[init_from] ", pretrained.folder,
         " has adapters, which only training.lora of the same rank and alpha goes on with: ",
         before.rank, " and ", before.alpha, ", got ", now.rank, " and ", now.alpha, '.');
  }
  if (adapted && before.dora && !now.dora) {
    fail(ErrorKind::kConfig, "[init_from] ", pretrained.folder,
         " has adapters with training.lora.dora, and goes on with it only.");
  }
}

void Resume::check_initializer(const ParamStore& store) const {
  const bool any_drawn = std::ranges::any_of(store.parameters(), [&](const Parameter& parameter) {
    return model_.find(parameter.name) == nullptr && !is_adapter(parameter.name);
  });
  if (any_drawn || asked_initializer_.empty()) return;
  fail(ErrorKind::kConfig, "[init_from] ", asked_initializer_,
       " has no effect: every parameter is taken from ", model_.name(), ". Leave the key out.");
}

std::string Resume::take_over(TrainingTask& task, const Config& config) {
  if (!old_labels_) return "";
  if (labels_of(task) != *old_labels_) {
    model_ = model_.only([](const std::string& name) { return !matches(name, kHeadOfClasses); });
  }
  check_adapters(task.parameters(), model_, config);
  check_initializer(task.parameters());
  return take_over_parameters(task.parameters(), model_);
}

}  // namespace tapestry
