#include "apps/config/config.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "apps/config/sections.h"

namespace tapestry {

DType tensor_dtype(const Config& config, Device device) {
  const bool mixed = config.precision == Precision::kBfloat16 && !device.is_cpu();
  return mixed ? DType::kBFloat16 : config.dtype;
}

Precision training_precision(const Config& config, Device device) {
  if (device.is_cpu()) return config.precision;
  return config.allow_tf32 ? Precision::kTf32 : Precision::kFull;
}

bool reads_images(const Config& config) {
  return !config.data.train.empty() && !config.data.train[0].images.empty();
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

// Those that any task has, each once.
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

void bind_config(ConfigSection& s, Config& config) {
  s.demand("task");
  std::vector<ConfigChoice<const TaskKind*>> tasks;
  for (const TaskKind* kind : task_kinds()) tasks.push_back({kind->name, kind});
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
  const TaskKind& task = *config.task;
  const auto section = [&](bool applies, const std::string& why, const char* key,
                           void (*bind)(ConfigSection & s, Config & config)) {
    s.section_if(applies, why, key, [&](ConfigSection& inner) { bind(inner, config); });
  };
  section(true, "", "data", bind_data);
  config.batch.seed = config.seed;
  section(!reads_images(config), "with images", "tokenizer", bind_tokenizer);
  section(true, "", "model", bind_model);
  section(true, "", "training", bind_training);
  for (const TaskSection& row : sections_of_tasks()) {
    const bool applies = std::any_of(task.sections.begin(), task.sections.end(),
                                     [&](const TaskSection& own) { return own.bind == row.bind; });
    section(applies, concat("with task: ", task.name), row.key, row.bind);
  }
}

Config read_tree(const ConfigNode& root, ConfigReadOptions options,
                 std::vector<ConfigProblem> problems = {}) {
  Config config;
  if (const ConfigEntry* entry = root.find("task")) {
    const TaskKind* const task = find_task(entry->value.text);
    if (task != nullptr && task->set_defaults != nullptr) task->set_defaults(config);
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
