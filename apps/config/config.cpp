#include "apps/config/config.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "apps/config/sections.h"
#include "core/base/pattern.h"
#include "core/cpu/bfloat16_kernel.h"
#include "core/device_name.h"

namespace tapestry {

namespace {

bool may_mix(const Config& config) {
  // A regression compares numbers that may differ in their last digits.
  return !examples_of(config).of_points();
}

bool auto_mixes(const Config& config, Device device) {
  return may_mix(config) && !config.portable_bits && bfloat16_is_faster(device);
}

}  // namespace

bool bfloat16_is_faster(Device device) {
  if (!device.is_cpu()) return true;
  const Bfloat16Kernel kernel = bfloat16_kernel();
  return kernel == Bfloat16Kernel::kAmx || kernel == Bfloat16Kernel::kAvx512;
}

std::string settle_dtype(Config& config, Device device) {
  if (!config.auto_dtype) return "";
  config.auto_dtype = false;
  config.mixed = auto_mixes(config, device);
  const std::string who = device.is_cpu() ? "this processor" : "this GPU";
  if (!may_mix(config)) return concat("dtype auto: float32, as ", config.task->name, " needs");
  if (config.portable_bits) return "dtype auto: float32, as deterministic: portable needs";
  if (device.is_cpu() && bfloat16_kernel() == Bfloat16Kernel::kBfmmla) {
    return "dtype auto: float32, as bfloat16 on bfmmla was measured on no processor";
  }
  return config.mixed ? concat("dtype auto: bfloat16, which ", who, " multiplies faster")
                      : concat("dtype auto: float32, as ", who, " multiplies bfloat16 no faster");
}

Numbers numbers_of(const Config& config, ModelUse use, Device device) {
  const bool trains = use == ModelUse::kTraining;
  const bool asked =
      (config.mixed && may_mix(config)) || (config.auto_dtype && auto_mixes(config, device));
  const bool mixed = asked && (trains || !device.is_cpu());
  const bool allowed = device.is_cpu() ? config.allow_bf16x3 : config.allow_tf32;
  const Precision faster = device.is_cpu() ? Precision::kBf16x3 : Precision::kTf32;
  return {mixed ? DType::kBFloat16 : config.dtype, trains && allowed ? faster : Precision::kFull};
}

bool learns(const Config& config, const std::string& parameter) {
  const auto any = [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches(parameter, pattern); });
  };
  const TrainingOptions& training = config.training;
  return (config.lora.rank == 0 || is_adapter(parameter) || any(training.modules_to_save)) &&
         !any(training.freeze);
}

void bind_device(ConfigSection& s, std::string& device) {
  std::string given = device;
  s.read("device", given,
         "Where it computes: auto (a GPU if one answers), cpu, cuda, or cuda:N for GPU N.");
  bool known = true;
  validate_device_name(given, OptionReport([&](const std::string&, const std::string& problem) {
                         known = false;
                         s.complain("device", '\'', s.full_name("device"), "' ", problem);
                       }));
  if (known) device = given;
}

namespace {

void bind_dtype(ConfigSection& s, Config& config) {
  std::tuple<DType, bool, bool> type{config.dtype, config.mixed, config.auto_dtype};
  s.read_choice(
      "dtype", type,
      {{"float32", {DType::kFloat32, false, false}},
       {"float64", {DType::kFloat64, false, false}},
       {"bfloat16", {DType::kFloat32, true, false}},
       {"auto", {DType::kFloat32, false, true}}},
      "Type of parameters and activations. bfloat16 is mixed precision: training computes "
      "with bfloat16 tensors and updates float32 weights. auto: bfloat16 where the processor or "
      "GPU multiplies it faster, else float32; the run keeps what was chosen.");
  std::tie(config.dtype, config.mixed, config.auto_dtype) = type;
}

// The sections of all tasks, each once.
std::vector<TaskSection> sections_of_tasks() {
  std::vector<TaskSection> all;
  for (const TaskKind* kind : task_kinds()) {
    for (const TaskSection& section : kind->sections) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const TaskSection& other) {
        return other.bind == section.bind;
      });
      if (!known) all.push_back(section);
    }
  }
  return all;
}

void bind_task(ConfigSection& s, Config& config) {
  s.demand("task");
  std::vector<ConfigChoice<const TaskKind*>> tasks;
  for (const TaskKind* kind : task_kinds()) tasks.push_back({kind->name, kind});
  s.read_choice("task", config.task, tasks,
                "What is learnt: to translate, to continue text (clm), to fill masks (mlm), to "
                "restore corrupted text (denoising), a class of each text or image "
                "(classification), any number of classes of a text (multi_label), a label of each "
                "word (token_classification), a number for a text (text_regression), to find the "
                "answers to questions in a text (question_answering), or a function of points "
                "(regression).");
}

constexpr const char* kData = "What is learnt from.";

void bind_config(ConfigSection& s, Config& config) {
  bind_task(s, config);
  s.read("seed", config.seed, "Seed of every draw: weights, batches, dropout, sampling.");
  bind_device(s, config.device);
  s.read("threads", config.threads, "CPU threads; 0: one for each core.", between(0, 1024));
  bind_dtype(s, config);
  s.read("allow_tf32", config.allow_tf32,
         "Lets a GPU round the factors of float32 products to TF32 (10 bits).");
  s.read("allow_bf16x3", config.allow_bf16x3,
         "Lets a CPU with AMX compute float32 products as three products of bfloat16 (16 bits).");
  s.read_choice("deterministic", config.portable_bits, {{"machine", false}, {"portable", true}},
                "Whose bits two runs share: those of one kind of processor, or of every processor "
                "with fused multiply-add, on which float32 products are slower and bfloat16 is "
                "multiplied as float32.");
  s.read("cuda_graphs", config.cuda_graphs,
         "Records an update's work on a GPU once for each shape and replays it.");
  s.demand("output_dir");
  s.read_output_path("output_dir", config.output_dir,
                     "Folder of the run: checkpoints, logs, metrics.");
  s.read_optional_path(
      "init_from", config.init_from,
      "Run, checkpoint, Hugging Face or PEFT folder whose tokenizer and parameters a new run "
      "starts from; without a section `model` the run has its model, too.");
  s.section("data", kData, [&](ConfigSection& inner) { bind_data(inner, config); });
  s.section_if(examples_of(config).of_text(), condition_of(config), "tokenizer",
               "How text becomes tokens.",
               [&](ConfigSection& inner) { bind_tokenizer(inner, config); });
  s.section("model", "The model.", [&](ConfigSection& inner) { bind_model(inner, config); });
  s.section("training", "How it is trained.",
            [&](ConfigSection& inner) { bind_training(inner, config); });
  s.section("distributed", "How several processes, on one machine or more, train together.",
            [&](ConfigSection& inner) { bind_distributed(inner, config); });
  const TaskKind& task = *config.task;
  for (const TaskSection& row : sections_of_tasks()) {
    const bool applies = std::any_of(task.sections.begin(), task.sections.end(),
                                     [&](const TaskSection& own) { return own.bind == row.bind; });
    s.section_if(applies, concat("with task: ", task.name), row.key, row.meaning,
                 [&](ConfigSection& inner) { row.bind(inner, config); });
  }
  derive(config);
}

void check_config(ConfigSection& s, const Config& config, bool is_new) {
  check_rules(config, {.complain =
                           [&](const std::string& key, const std::string& problem) {
                             s.complain_of(key, concat('\'', key, "' ", problem));
                           },
                       .is_sound = [&](const std::string& name) { return s.is_sound(name); },
                       .is_new = is_new});
}

// Before the rest is read.
RunPaths paths_of(const ConfigNode& root) {
  RunPaths paths;
  const auto bind = [&](ConfigSection& s) {
    s.read_output_path("output_dir", paths.output_dir, "");
    s.read_optional_path("init_from", paths.init_from, "");
  };
  read_config(
      root, bind,
      {.require_keys = false, .check_files = false, .refuse_unused = false, .complain = false});
  return paths;
}

// The kind of the examples that a config asks for; with the task it decides the defaults of
// everything else.
std::pair<const TaskKind*, const ExampleKind*> kind_of(const ConfigNode& root) {
  Config kind;
  const auto bind = [&](ConfigSection& s) {
    bind_task(s, kind);
    s.section("data", kData, [&](ConfigSection& inner) { bind_data(inner, kind); });
  };
  read_config(root, bind, {.check_files = false, .complain = false});
  return {kind.task, &examples_of(kind)};
}

/// The resolved tree of a config: the result of binding it to an empty file.
ConfigNode resolve(const Config& config) {
  Config copy = config;
  ConfigReadOptions options;
  options.require_keys = false;
  options.check_files = false;
  return read_config(
      ConfigNode::map(), [&](ConfigSection& s) { bind_config(s, copy); }, options);
}

// A corpus with these keys, completed from one that was learnt from.
CorpusSpec like(const CorpusSpec& learnt, const ConfigNode& keys) {
  CorpusSpec corpus;
  const bool same = std::ranges::any_of(CorpusSpec::file_keys(), [&](const std::string& key) {
    return keys.find(key) != nullptr && !learnt.file(key).empty();
  });
  if (same) {
    const CorpusSpec fresh;
    corpus = learnt;
    corpus.forget_files();
    corpus.split = fresh.split;
    corpus.limit = fresh.limit;
    corpus.range_begin = fresh.range_begin;
    corpus.range_end = fresh.range_end;
  }
  // Records of any format have the fields of the templates; a text has none.
  const bool records = std::ranges::any_of(record_formats(), [&](const RecordFormat* format) {
    return keys.find(format->name) != nullptr;
  });
  const bool prompts = records && keys.find("text_column") == nullptr;
  corpus.prompt = prompts ? learnt.prompt : "";
  corpus.answer = prompts ? learnt.answer : "";
  return corpus;
}

// True for what Tapestry writes into a run or a checkpoint: every key, whether anybody asked for it
// or not.
bool is_written_out(const ConfigNode& root) {
  if (root.find("cuda_graphs") == nullptr || root.find("distributed") == nullptr) return false;
  const Config config = read_tree(root, {.check_files = false, .complain = false});
  const auto name = [](const auto& entry) -> const std::string& { return entry.first; };
  return std::ranges::equal(flat_keys(resolve(config)), flat_keys(root), {}, name, name);
}

// An override of data.rows turns the file's length of a row into that of the other kind. Blocks are
// never overlong.
void follow_rows(ConfigNode& root) {
  ConfigEntry* const data = root.find("data");
  if (data == nullptr) return;
  const auto of_file = [&](const char* key) {
    ConfigEntry* const entry = data->value.find(key);
    return entry == nullptr || entry->value.location.is_override() ? nullptr : entry;
  };
  const ConfigEntry* const rows = data->value.find("rows");
  if (rows == nullptr || of_file("rows") != nullptr) return;
  const bool documents = rows->value.text == "documents";
  if (!documents && rows->value.text != "blocks") return;
  const char* const to = documents ? "max_length" : "block_size";
  ConfigEntry* const length = of_file(documents ? "block_size" : "max_length");
  if (length != nullptr && data->value.find(to) == nullptr) length->key = to;
  if (!documents && of_file("overlong") != nullptr) {
    std::erase_if(data->value.entries,
                  [](const ConfigEntry& entry) { return entry.key == "overlong"; });
  }
}

}  // namespace

// A resumed model stays the same, unless the config has a section that changes it.
void begin_with(const Config& before, const ConfigNode& root, const ExampleKind& examples,
                Config& config) {
  const std::vector<ModelType>& types = examples_in(*config.task, examples).models;
  if (std::ranges::find(types, before.model_type) == types.end()) return;
  const bool recompute = config.model.recompute;
  config.model_type = before.model_type;
  config.model = before.model;
  config.model.recompute = recompute;
  if (!examples.prompted) config.model.prefix_lm = false;
  // An example is no longer than the positions that it learnt.
  const int64_t longest = config.model.longest_sequence();
  config.data.block_size = std::min(config.data.block_size, longest);
  config.data.corpus.max_length = std::min(config.data.corpus.max_length, longest);
  // A folder of another system also sets the search options.
  if (root.find("generation") == nullptr) config.generation = before.generation;
}

Config read_tree(const ConfigNode& root, ConfigReadOptions options,
                 std::vector<ConfigProblem> problems, const BeginConfig& begin) {
  const auto [task, examples] = kind_of(root);
  Config config = default_config(*task, examples);
  if (begin) begin(*examples, config);
  const auto bind = [&](ConfigSection& s) {
    bind_config(s, config);
    check_config(s, config, options.refuse_unused);
  };
  read_config(root, bind, options, std::move(problems));
  return config;
}

Config load_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                   bool check_files,
                   const std::function<Config(const RunPaths& paths)>& pretrained) {
  ConfigNode root = source.text ? parse_config_text(*source.text, source.path, "")
                                : parse_config_file(source.path);
  bool has_model = root.find("model") != nullptr;
  for (const std::string& override : overrides) has_model |= override.starts_with("model=");
  ConfigReadOptions options;
  options.check_files = check_files;
  options.of_overrides_only = !overrides.empty() && is_written_out(root);
  std::vector<ConfigProblem> problems;
  for (size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root, overrides[i], static_cast<int>(i), problems);
  }
  follow_rows(root);
  BeginConfig begin;
  if (pretrained && !has_model && root.kind == ConfigNode::Kind::kMap) {
    const RunPaths paths = paths_of(root);
    if (!paths.init_from.empty()) {
      begin = [&root, before = pretrained(paths)](const ExampleKind& examples, Config& config) {
        begin_with(before, root, examples, config);
      };
    }
  }
  return read_tree(root, options, std::move(problems), begin);
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::string& directory) {
  return read_tree(parse_config_text(text, name, directory), {});
}

namespace {

// Fills in the meaning of keys that old checkpoints lack. Returns true if targets are normalised
// like sources.
bool fill_in_old_meaning(ConfigNode& root) {
  ConfigEntry* const tokenizer = root.find("tokenizer");
  if (tokenizer == nullptr || tokenizer->value.kind != ConfigNode::Kind::kMap) return false;
  ConfigNode& keys = tokenizer->value;
  const ConfigEntry* const of_source = keys.find("normalization");
  if (of_source == nullptr || keys.find("target_normalization") != nullptr) return false;
  keys.entries.push_back({"target_normalization", of_source->location, of_source->value});
  return true;
}

}  // namespace

Config load_checkpoint_config(const std::string& json, const std::string& name) {
  ConfigReadOptions options;
  options.check_files = false;
  options.refuse_unused = false;
  ConfigNode root = parse_config_text(json, name, "");
  const bool one_normalization = fill_in_old_meaning(root);
  Config config = read_tree(root, options);
  config.one_normalization = one_normalization;
  return config;
}

CorpusSpec read_corpus(const Config& config, const std::vector<std::string>& keys) {
  ConfigNode root = ConfigNode::map();
  std::vector<ConfigProblem> problems;
  for (size_t i = 0; i < keys.size(); ++i) {
    apply_override(root, keys[i], static_cast<int>(i), problems);
  }
  CorpusSpec corpus = like(config.data.train.at(0), root);
  read_config(
      root, [&](ConfigSection& s) { bind_corpus(s, *config.task, corpus); },
      {.require_keys = false, .check_files = false}, std::move(problems));
  corpus.validate();
  return corpus;
}

std::map<std::string, std::string> flat_keys(const Config& config) {
  return flat_keys(resolve(config));
}

std::string to_yaml(const Config& config) { return to_yaml(resolve(config)); }
std::string to_json(const Config& config) { return to_json(resolve(config)); }

}  // namespace tapestry
