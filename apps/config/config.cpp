#include "apps/config/config.h"

#include <tuple>
#include <utility>

#include "apps/config/sections.h"

namespace tapestry {

DType tensor_dtype(const Config& config, Device device) {
  const bool mixed = config.precision == Precision::kBfloat16 && !device.is_cpu();
  return mixed ? DType::kBFloat16 : config.dtype;
}

const char* name_of(Task task) {
  switch (task) {
    case Task::kTranslation:
      return "translation";
    case Task::kClm:
      return "clm";
    case Task::kMlm:
      return "mlm";
    case Task::kDenoising:
      return "denoising";
    case Task::kClassification:
      return "classification";
  }
  return "";
}

const char* name_of(ModelType type) {
  switch (type) {
    case ModelType::kEncoderDecoder:
      return "encoder_decoder";
    case ModelType::kRnnAttention:
      return "rnn_attention";
    case ModelType::kEncoder:
      return "encoder";
    case ModelType::kDecoder:
      return "decoder";
    case ModelType::kVit:
      return "vit";
    case ModelType::kLinear:
      return "linear";
  }
  return "";
}

std::vector<std::string> metrics_of(Task task) {
  switch (task) {
    case Task::kTranslation:
      return {"bleu", "chrf", "nll", "loss", "ppl"};
    case Task::kClassification:
      return {"accuracy", "nll", "loss"};
    default:
      return {"nll", "loss", "ppl", "accuracy"};
  }
}

namespace {

void bind_device(ConfigSection& s, std::string& device) {
  s.read("device", device);
  const bool named = device == "auto" || device == "cpu" || device == "cuda";
  const bool numbered = device.starts_with("cuda:") && device.size() > 5 &&
                        device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (!named && !numbered) {
    s.complain("device", "'device' must be one of auto, cpu, cuda, cuda:N, got '", device, "'.");
  }
}

// bfloat16 is mixed precision; what that means depends on the device: tensor_dtype().
void bind_dtype(ConfigSection& s, Config& config) {
  std::pair<DType, Precision> type{config.dtype, config.precision};
  s.read_choice("dtype", type,
                {{"float32", {DType::kFloat32, Precision::kFull}},
                 {"float64", {DType::kFloat64, Precision::kFull}},
                 {"bfloat16", {DType::kFloat32, Precision::kBfloat16}}});
  std::tie(config.dtype, config.precision) = type;
}

void bind_config(ConfigSection& s, Config& config) {
  s.demand("task");
  std::vector<ConfigChoice<Task>> tasks;
  for (const Task task :
       {Task::kTranslation, Task::kClm, Task::kMlm, Task::kDenoising, Task::kClassification}) {
    tasks.push_back({name_of(task), task});
  }
  s.read_choice("task", config.task, tasks);
  s.read("seed", config.seed);
  bind_device(s, config.device);
  s.read("threads", config.threads, between(0, 1024));
  bind_dtype(s, config);
  s.read("allow_tf32", config.allow_tf32);
  s.read("cuda_graphs", config.cuda_graphs);
  s.demand("output_dir");
  s.read_output_path("output_dir", config.output_dir);
  s.know("init_from");
  if (s.given("init_from") || !config.init_from.empty()) {
    s.read_output_path("init_from", config.init_from);
  }
  const auto section = [&](bool applies, const char* key,
                           void (*bind)(ConfigSection & s, Config & config)) {
    const std::string why =
        reads_images(config) ? "with images" : concat("with task: ", name_of(config.task));
    s.section_if(applies, why, key, [&](ConfigSection& inner) { bind(inner, config); });
  };
  section(true, "data", bind_data);
  config.batch.seed = config.seed;
  section(!reads_images(config), "tokenizer", bind_tokenizer);
  section(config.task == Task::kMlm, "masking", bind_masking);
  section(config.task == Task::kDenoising, "denoising", bind_denoising);
  section(true, "model", bind_model);
  section(true, "training", bind_training);
  section(config.task != Task::kMlm && config.task != Task::kClassification, "generation",
          bind_generation);
  section(config.task == Task::kTranslation, "evaluation", bind_evaluation);
}

Config read_tree(const ConfigNode& root, ConfigReadOptions options,
                 std::vector<ConfigProblem> problems = {}) {
  Config config;
  if (const ConfigEntry* task = root.find("task"); task != nullptr && task->value.text == "clm") {
    config.generation.num_beams = 1;  // open-ended text is sampled, not searched for
    config.generation.do_sample = true;
  }
  read_config(
      root, [&](ConfigSection& s) { bind_config(s, config); }, options, std::move(problems));
  return config;
}

/// The resolved tree of a config: what binding it to an empty file yields.
ConfigNode resolve(const Config& config) {
  Config copy = config;
  ConfigReadOptions options;
  options.require_keys = false;
  options.check_files = false;
  return read_config(
      ConfigNode::map(), [&](ConfigSection& s) { bind_config(s, copy); }, options);
}

void flatten(const ConfigNode& node, const std::string& name,
             std::map<std::string, std::string>& keys) {
  const auto inside = [&](const std::string& key) { return name.empty() ? key : name + '.' + key; };
  if (node.kind == ConfigNode::Kind::kMap) {
    for (const ConfigEntry& entry : node.entries) flatten(entry.value, inside(entry.key), keys);
  } else if (node.kind == ConfigNode::Kind::kList) {
    for (size_t i = 0; i < node.items.size(); ++i) {
      flatten(node.items[i], inside(std::to_string(i)), keys);
    }
  } else {
    keys[name] = node.text;
  }
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   bool check_files) {
  ConfigNode root = parse_config_file(path);
  std::vector<ConfigProblem> problems;
  for (size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root, overrides[i], static_cast<int>(i), problems);
  }
  ConfigReadOptions options;
  options.check_files = check_files;
  return read_tree(root, options, std::move(problems));
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::string& directory) {
  return read_tree(parse_config_text(text, name, directory), {});
}

Config load_checkpoint_config(const std::string& json, const std::string& name) {
  ConfigReadOptions options;
  options.check_files = false;
  options.refuse_unused = false;
  return read_tree(parse_config_text(json, name, ""), options);
}

std::map<std::string, std::string> flat_keys(const Config& config) {
  std::map<std::string, std::string> keys;
  flatten(resolve(config), "", keys);
  return keys;
}

std::string to_yaml(const Config& config) { return to_yaml(resolve(config)); }
std::string to_json(const Config& config) { return to_json(resolve(config)); }

}  // namespace tapestry
