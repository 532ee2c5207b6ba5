#include "apps/config/key_families.h"

#include <algorithm>

#include "apps/config/sections.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

// A config that nobody trains.
struct Probe {
  std::string key;  ///< the probe shows nothing where this key does not apply
  std::string override_text;
};

// What decides which keys apply, beside the choices: those are all tried out.
std::vector<Probe> probes() {
  std::vector<Probe> all;
  for (const RecordFormat* format : record_formats()) {
    all.push_back(
        {concat("data.train.", format->name), concat("data.train={", format->name, ": x}")});
  }
  all.insert(all.end(),
             {{"data.train.ding", "data.train={ding: x}"},
              {"data.train.prompt", "data.train={jsonl: x, prompt: \"{a}\"}"},
              {"data.train.messages_column", "data.train={jsonl: x, messages_column: messages}"},
              {"data.train.score_column", "data.train={tsv: x, score_column: 3}"},
              {"tokenizer.path", "tokenizer.path=x"},
              {"model.kv_latent_size", "model.kv_latent_size=2"},
              {"model.vector_size", "model.vector_size=2"},
              {"model.pooled_tokens", "model.pooled_tokens=true"},
              {"training.lora.rank", "training.lora.rank=2"},
              {"training.max_grad_norm", "training.max_grad_norm=1"},
              {"training.max_hours", "training.max_hours=1"},
              {"training.teacher", "training.teacher=x"},
              {"training.guided_alignment.file", "training.guided_alignment.file=x"}});
  return all;
}
constexpr const char* kEmptyCorpus = "data.train={}";  // with the keys that it would need
constexpr const char* kImageProbe = "data.train={images: x}";

KeyReading read_keys(const std::string& task, const std::vector<std::string>& overrides) {
  ConfigNode root = parse_config_text(concat("task: ", task), "probe", "");
  std::vector<ConfigProblem> problems;
  for (const std::string& text : overrides) apply_override(root, text, 0, problems);
  KeyReading keys;
  read_tree(root, {.check_files = false, .complain = false, .keys = &keys});
  std::erase_if(keys, [](const ConfigKey& key) {
    return key.name.starts_with("data.valid.") || key.name.starts_with("data.test.");
  });
  return keys;
}

// The choices that only show beside a value of another choice.
void add_inner_choices(const std::string& task, const std::string& corpus, KeyFamily& family) {
  const size_t outer = family.variants.size();
  for (size_t i = 0; i < outer; ++i) {
    if (family.variants[i].value.empty()) continue;
    const KeyVariant variant = family.variants[i];
    for (const ConfigKey& key : variant.reading) {
      if (!key.applies || find_applying(family.base, key.name) != nullptr) continue;
      for (const std::string& choice : key.choices) {
        if (choice == key.value) continue;
        KeyReading reading = read_keys(
            task, {corpus, concat(variant.key, '=', variant.value), concat(key.name, '=', choice)});
        family.variants.push_back({key.name, choice, std::move(reading), i});
      }
    }
  }
}

KeyFamily family_of(const std::string& name, const TaskKind& kind, const std::string& corpus) {
  const std::string task = kind.name;
  KeyFamily family{name, &kind, read_keys(task, {corpus})};
  for (const Probe& probe : probes()) {
    // Another kind of corpus is another family, or none that the task reads.
    const bool of_data = probe.key.starts_with("data.");
    if (of_data && corpus != kEmptyCorpus) continue;
    if (of_data && find_applying(family.base, probe.key) != nullptr) {
      continue;
    }
    KeyReading reading = read_keys(task, {corpus, probe.override_text});
    if (find_applying(reading, probe.key) == nullptr) continue;
    family.variants.push_back({probe.key, "", std::move(reading), {}});
  }
  for (const ConfigKey& key : family.base) {
    if (!key.applies || key.name == "task") continue;
    for (const std::string& choice : key.choices) {
      if (choice == key.value) continue;
      family.variants.push_back(
          {key.name, choice, read_keys(task, {corpus, concat(key.name, '=', choice)}), {}});
    }
  }
  add_inner_choices(task, corpus, family);
  return family;
}

std::string preset_of(const ConfigKey& key) {
  return key.required                                        ? "required"
         : key.value == "[]" || key.type.starts_with("file") ? ""
                                                             : key.value;
}

}  // namespace

const ConfigKey* find_key(const KeyReading& reading, const std::string& name) {
  for (const ConfigKey& key : reading) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

const ConfigKey* find_applying(const KeyReading& reading, const std::string& name) {
  const ConfigKey* const key = find_key(reading, name);
  return key != nullptr && key->applies ? key : nullptr;
}

std::string short_key_name(const std::string& of, const std::string& beside) {
  const size_t dot = of.rfind('.');
  const bool same = dot != std::string::npos && beside.starts_with(of.substr(0, dot + 1)) &&
                    beside.find('.', dot + 1) == std::string::npos;
  return same ? of.substr(dot + 1) : of;
}

KeySight sight_of(const KeyFamily& family, const std::string& name) {
  KeySight sight;
  sight.key = find_applying(family.base, name);
  const bool always = sight.key != nullptr;
  bool is_probe = false;
  std::vector<std::string> probes;
  std::map<std::string, std::vector<std::string>> presets;  // other defaults, with their choices
  for (const KeyVariant& variant : family.variants) {
    const ConfigKey* const found = find_applying(variant.reading, name);
    if (found != nullptr && sight.key == nullptr) sight.key = found;
    if (name == variant.key) {
      if (variant.outer) continue;
      is_probe |= found != nullptr && !always;
      continue;
    }
    if (variant.value.empty()) {
      if ((found != nullptr) == always) continue;
      probes.push_back(concat(always ? "without " : "with ", short_key_name(variant.key, name)));
      continue;
    }
    const KeyReading& beside =
        variant.outer ? family.variants[*variant.outer].reading : family.base;
    const bool before = find_applying(beside, name) != nullptr;
    if (variant.outer && before == (found != nullptr)) continue;  // the outer choice tells
    ChoiceValues& values = sight.choices[variant.key];
    (found != nullptr ? values.with : values.without).insert(variant.value);
    (before ? values.with : values.without).insert(find_key(beside, variant.key)->value);
    if (found != nullptr && preset_of(*found) != preset_of(*sight.key)) {
      presets[preset_of(*found)].push_back(
          concat(short_key_name(variant.key, name), ": ", variant.value));
    }
  }
  // A choice that changes nothing is no condition; neither is one that shows nothing.
  std::erase_if(sight.choices, [](const auto& entry) {
    return entry.second.with.empty() || entry.second.without.empty();
  });
  if (sight.key == nullptr) return sight;
  // A key that is a probe itself needs no other one.
  sight.probe = is_probe ? "" : join(probes, ", ", always ? " and " : " or ");
  sight.preset = is_probe ? "" : preset_of(*sight.key);
  for (const auto& [preset, choices] : presets) {
    sight.preset += concat("; ", preset, " with ", join(choices, ", ", " or "));
  }
  return sight;
}

std::string section_of_key(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string last_part_of_key(const std::string& name) { return name.substr(name.rfind('.') + 1); }

const std::vector<KeyFamily>& key_families() {
  static const std::vector<KeyFamily> families = [] {
    std::vector<KeyFamily> all;
    for (const TaskKind* task : task_kinds()) {
      const bool images = task->reads(Medium::kImages);
      all.push_back(family_of(concat(task->name, images ? " of texts" : ""), *task, kEmptyCorpus));
      if (images) all.push_back(family_of(concat(task->name, " of images"), *task, kImageProbe));
    }
    return all;
  }();
  return families;
}

const std::vector<std::string>& ordered_key_names() {
  // Names of all readings, each behind the one that it first followed.
  static const std::vector<std::string> ordered = [] {
    std::vector<std::string> names;
    const auto merge = [&](const KeyReading& reading) {
      auto at = names.begin();
      for (const ConfigKey& key : reading) {
        const auto found = std::find(names.begin(), names.end(), key.name);
        at = found != names.end() ? found + 1 : names.insert(at, key.name) + 1;
      }
    };
    for (const KeyFamily& family : key_families()) merge(family.base);
    for (const KeyFamily& family : key_families()) {
      for (const KeyVariant& variant : family.variants) merge(variant.reading);
    }
    return names;
  }();
  return ordered;
}

}  // namespace tapestry
