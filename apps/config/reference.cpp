#include "apps/config/reference.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "apps/config/sections.h"
#include "core/nearest_name.h"

namespace tapestry {
namespace {

// A config that nobody trains.
struct Probe {
  const char* key;  ///< the probe has no effect if this key does not apply
  const char* override_text;
};

// Configs that bring keys to light, besides the choices, all of which are tried.
constexpr Probe kProbes[] = {
    {"data.train.tsv", "data.train={tsv: x}"},
    {"data.train.ding", "data.train={ding: x}"},
    {"data.train.csv", "data.train={csv: x}"},
    {"data.train.jsonl", "data.train={jsonl: x}"},
    {"data.train.prompt", "data.train={jsonl: x, prompt: \"{a}\"}"},
    {"tokenizer.path", "tokenizer.path=x"},
    {"model.kv_latent_size", "model.kv_latent_size=2"},
    {"training.lora.rank", "training.lora.rank=2"},
};
constexpr const char* kEmptyCorpus = "data.train={}";  // with the keys that it would need
constexpr const char* kImageProbe = "data.train={images: x}";

std::string joined(const std::vector<std::string>& list, const char* last) {
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    text += i == 0 ? "" : i + 1 == list.size() ? last : ", ";
    text += list[i];
  }
  return text;
}

/// "a, b or c"
std::string alternatives(const std::set<std::string>& list) {
  return joined({list.begin(), list.end()}, " or ");
}

/// The keys of one reading, in their order.
using Reading = std::vector<ConfigKey>;

Reading read_keys(const std::string& task, const std::vector<std::string>& overrides) {
  ConfigNode root = parse_config_text(concat("task: ", task), "probe", "");
  std::vector<ConfigProblem> problems;
  for (const std::string& text : overrides) apply_override(root, text, 0, problems);
  Reading keys;
  read_tree(root, {.check_files = false, .complain = false, .keys = &keys});
  std::erase_if(keys, [](const ConfigKey& key) {
    return key.name.starts_with("data.valid.") || key.name.starts_with("data.test.");
  });
  return keys;
}

const ConfigKey* find(const Reading& reading, const std::string& name) {
  for (const ConfigKey& key : reading) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

/// The key, if it has an effect.
const ConfigKey* find_applying(const Reading& reading, const std::string& name) {
  const ConfigKey* const key = find(reading, name);
  return key != nullptr && key->applies ? key : nullptr;
}

/// A reading that differs from its task's first in one key.
struct Variant {
  std::string key;    ///< full name
  std::string value;  ///< of a choice; empty for a probe
  Reading reading;
  std::optional<size_t> outer = {};  ///< the variant that it differs from instead
};

/// A task of a kind of examples, with every other choice of each key.
struct Family {
  std::string name;  ///< "classification of images"
  Reading base;
  std::vector<Variant> variants;
};

// The choices that only show beside a value of another choice.
void add_inner_choices(const std::string& task, const std::string& corpus, Family& family) {
  const size_t outer = family.variants.size();
  for (size_t i = 0; i < outer; ++i) {
    if (family.variants[i].value.empty()) continue;
    const Variant variant = family.variants[i];
    for (const ConfigKey& key : variant.reading) {
      if (!key.applies || find_applying(family.base, key.name) != nullptr) continue;
      for (const std::string& choice : key.choices) {
        if (choice == key.value) continue;
        Reading reading = read_keys(
            task, {corpus, concat(variant.key, '=', variant.value), concat(key.name, '=', choice)});
        family.variants.push_back({key.name, choice, std::move(reading), i});
      }
    }
  }
}

Family family_of(const std::string& name, const std::string& task, const std::string& corpus) {
  Family family{name, read_keys(task, {corpus}), {}};
  for (const Probe& probe : kProbes) {
    // Another kind of corpus belongs to another family, or is not read by the task.
    if (std::string(probe.key).starts_with("data.") && corpus != kEmptyCorpus) continue;
    if (find_applying(family.base, probe.key) != nullptr &&
        std::string(probe.key).starts_with("data.")) {
      continue;
    }
    Reading reading = read_keys(task, {corpus, probe.override_text});
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

std::vector<Family> families() {
  std::vector<Family> all;
  for (const TaskKind* task : task_kinds()) {
    const bool images = !task->image_models.empty();
    all.push_back(
        family_of(concat(task->name, images ? " of texts" : ""), task->name, kEmptyCorpus));
    if (!images) continue;
    all.push_back(family_of(concat(task->name, " of images"), task->name, kImageProbe));
  }
  return all;
}

/// "name: adam" of a key in the same section, else "training.optimizer.name: adam".
std::string short_name(const std::string& of, const std::string& beside) {
  const size_t dot = of.rfind('.');
  const bool same = dot != std::string::npos && beside.starts_with(of.substr(0, dot + 1)) &&
                    beside.find('.', dot + 1) == std::string::npos;
  return same ? of.substr(dot + 1) : of;
}

/// The values of a choice with which a key has an effect, and those with which it has none.
struct Values {
  std::set<std::string> with, without;
};

/// A family's view of a key; empty if it never applies.
struct Sight {
  const ConfigKey* key = nullptr;
  std::string probe;                      ///< "with tsv", "without path"
  std::map<std::string, Values> choices;  ///< by the key that has the choice
  std::string preset;
};

std::string preset_of(const ConfigKey& key) {
  return key.required ? "required" : key.value == "[]" || key.type == "file" ? "" : key.value;
}

Sight sight_of(const Family& family, const std::string& name) {
  Sight sight;
  sight.key = find_applying(family.base, name);
  const bool always = sight.key != nullptr;
  bool is_probe = false;
  std::vector<std::string> probes;
  std::map<std::string, std::vector<std::string>> presets;  // other defaults, with their choices
  for (const Variant& variant : family.variants) {
    const ConfigKey* const found = find_applying(variant.reading, name);
    if (found != nullptr && sight.key == nullptr) sight.key = found;
    if (name == variant.key) {
      if (variant.outer) continue;
      is_probe |= found != nullptr && !always;
      continue;
    }
    if (variant.value.empty()) {
      if ((found != nullptr) == always) continue;
      probes.push_back(concat(always ? "without " : "with ", short_name(variant.key, name)));
      continue;
    }
    const Reading& beside = variant.outer ? family.variants[*variant.outer].reading : family.base;
    const bool before = find_applying(beside, name) != nullptr;
    if (variant.outer && before == (found != nullptr)) continue;  // the outer choice decides
    Values& values = sight.choices[variant.key];
    (found != nullptr ? values.with : values.without).insert(variant.value);
    (before ? values.with : values.without).insert(find(beside, variant.key)->value);
    if (found != nullptr && preset_of(*found) != preset_of(*sight.key)) {
      presets[preset_of(*found)].push_back(
          concat(short_name(variant.key, name), ": ", variant.value));
    }
  }
  // A choice that changes nothing is no condition; neither is one that shows nothing.
  std::erase_if(sight.choices, [](const auto& entry) {
    return entry.second.with.empty() || entry.second.without.empty();
  });
  if (sight.key == nullptr) return sight;
  // A key that is a probe itself needs no other one.
  sight.probe = is_probe ? "" : joined(probes, always ? " and " : " or ");
  sight.preset = is_probe ? "" : preset_of(*sight.key);
  for (const auto& [preset, choices] : presets) {
    sight.preset += concat("; ", preset, " with ", joined(choices, " or "));
  }
  return sight;
}

/// Groups of families with equal values, in their order.
class Groups {
 public:
  void add(const std::string& what, const std::string& family) {
    for (auto& [known, names] : groups_) {
      if (known == what) return names.push_back(family);
    }
    groups_.push_back({what, {family}});
  }
  const std::vector<std::pair<std::string, std::vector<std::string>>>& all() const {
    return groups_;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> groups_;
};

/// "translation, classification": all families of one task get one name.
std::string tasks_of(std::vector<std::string> families, const std::vector<Family>& all) {
  if (families.size() == all.size()) return "all";
  if (families.size() + 1 == all.size()) {
    for (const Family& family : all) {
      if (std::find(families.begin(), families.end(), family.name) == families.end()) {
        return concat("all but ", family.name);
      }
    }
  }
  for (const TaskKind* task : task_kinds()) {
    const std::string texts = concat(task->name, " of texts"),
                      images = concat(task->name, " of images");
    const auto first = std::find(families.begin(), families.end(), texts);
    const auto second = std::find(families.begin(), families.end(), images);
    if (first == families.end() || second == families.end()) continue;
    *first = task->name;
    families.erase(second);
  }
  return joined(families, ", ");
}

/// "with name: adam or adamw; not with type: linear", of all families together.
std::string choices_of(const std::string& name, const std::vector<Sight>& sights) {
  std::map<std::string, Values> all;
  for (const Sight& sight : sights) {
    for (const auto& [key, values] : sight.choices) {
      all[key].with.insert(values.with.begin(), values.with.end());
      all[key].without.insert(values.without.begin(), values.without.end());
    }
  }
  std::string text;
  for (const auto& entry : all) {
    const std::string& key = entry.first;
    const Values& values = entry.second;
    // Families that have no such choice: the key applies beside the value that they always have.
    const bool everywhere = std::all_of(sights.begin(), sights.end(), [&](const Sight& sight) {
      return sight.choices.contains(key);
    });
    const bool positive = everywhere && values.with.size() <= values.without.size();
    text +=
        concat(text.empty() ? "" : "; ", positive ? "with " : "not with ", short_name(key, name),
               ": ", alternatives(positive ? values.with : values.without));
  }
  return text;
}

KeyEntry entry_of(const std::string& name, const std::vector<Family>& families) {
  KeyEntry entry;
  entry.name = name;
  Groups tasks, presets, bounds, meanings;
  std::vector<Sight> sights;
  for (const Family& family : families) {
    const Sight sight = sight_of(family, name);
    if (sight.key == nullptr) continue;
    entry.type = sight.key->type;
    const bool choice = !sight.key->choices.empty();
    tasks.add(sight.probe, family.name);
    presets.add(sight.preset, family.name);
    bounds.add(choice ? joined(sight.key->choices, ", ") : sight.key->bounds, family.name);
    meanings.add(sight.key->meaning, family.name);
    sights.push_back(sight);
  }
  for (const auto& [probe, names] : tasks.all()) {
    entry.tasks += concat(entry.tasks.empty() ? "" : "; ", tasks_of(names, families),
                          probe.empty() ? "" : " ", probe);
  }
  const std::string choices = choices_of(name, sights);
  if (!choices.empty()) entry.tasks += "; " + choices;
  // The first group needs no names: it holds for all others.
  const auto write = [&](const Groups& groups, const char* separator, std::string& text) {
    for (const auto& [what, names] : groups.all()) {
      if (what.empty()) continue;
      text += concat(text.empty() ? "" : separator, what);
      if (&what != &groups.all().front().first)
        text += concat(" (", tasks_of(names, families), ')');
    }
  };
  write(presets, "; ", entry.preset);
  write(bounds, "; ", entry.bounds);
  for (const auto& [meaning, names] : meanings.all()) {
    if (!entry.meaning.empty()) entry.meaning += ' ';
    if (meanings.all().size() > 1) entry.meaning += concat("In ", tasks_of(names, families), ": ");
    entry.meaning += meaning;
  }
  return entry;
}

/// Names of all readings, each behind the one that it first followed.
std::vector<std::string> ordered_names(const std::vector<Family>& families) {
  std::vector<std::string> names;
  const auto merge = [&](const Reading& reading) {
    auto at = names.begin();
    for (const ConfigKey& key : reading) {
      const auto found = std::find(names.begin(), names.end(), key.name);
      at = found != names.end() ? found + 1 : names.insert(at, key.name) + 1;
    }
  };
  for (const Family& family : families) merge(family.base);
  for (const Family& family : families) {
    for (const Variant& variant : family.variants) merge(variant.reading);
  }
  return names;
}

std::string section_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// Calls f(section, keys) for each section that has keys of its own: the top level, then in order.
void for_each_section(
    const std::function<void(const KeyEntry*, const std::vector<const KeyEntry*>&)>& f) {
  const auto keys_in = [](const std::string& section) {
    std::vector<const KeyEntry*> keys;
    for (const KeyEntry& entry : key_entries()) {
      if (!entry.is_section() && section_of(entry.name) == section) keys.push_back(&entry);
    }
    return keys;
  };
  f(nullptr, keys_in(""));
  for (const KeyEntry& entry : key_entries()) {
    if (entry.is_section()) f(&entry, keys_in(entry.name));
  }
}

std::string lines_of(const KeyEntry& entry) {
  std::string text = concat(entry.name, "\n    ", entry.meaning, "\n    ", entry.type);
  if (!entry.bounds.empty()) {
    text += concat(entry.type == "choice" ? ": " : ", ", entry.bounds);
  }
  if (!entry.preset.empty()) {
    text += concat(entry.preset == "required" ? "; " : "; default: ", entry.preset);
  }
  text += concat("\n    tasks: ", entry.tasks, '\n');
  return text;
}

/// A cell of a table.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

const std::vector<KeyEntry>& key_entries() {
  static const std::vector<KeyEntry> entries = [] {
    const std::vector<Family> all = families();
    std::vector<KeyEntry> list;
    const std::vector<std::string> names = ordered_names(all);
    list.reserve(names.size());
    for (const std::string& name : names) list.push_back(entry_of(name, all));
    return list;
  }();
  return entries;
}

std::string describe_key(const std::string& given) {
  std::string name = given;
  for (const std::string same : {"data.valid.", "data.test."}) {
    if (name.starts_with(same)) name.replace(0, same.size(), "data.train.");
  }
  std::vector<std::string> names, matches;
  std::string text;
  for (const KeyEntry& entry : key_entries()) {
    names.push_back(entry.name);
    const bool own_name = entry.name.substr(entry.name.rfind('.') + 1) == name;
    if (entry.name == name || own_name) matches.push_back(entry.name);
  }
  // The full name wins over keys of that name in other sections.
  if (std::find(matches.begin(), matches.end(), name) != matches.end()) matches = {name};
  for (const KeyEntry& entry : key_entries()) {
    if (std::find(matches.begin(), matches.end(), entry.name) == matches.end()) continue;
    if (!text.empty()) text += '\n';
    text += lines_of(entry);
    if (!entry.is_section()) continue;
    for (const KeyEntry& key : key_entries()) {
      if (key.name.starts_with(entry.name + '.')) text += '\n' + lines_of(key);
    }
  }
  if (!matches.empty()) return text;
  // The last part of the name; the sections in front of it add nothing.
  std::vector<std::string> last_parts;
  for (const std::string& known : names) last_parts.push_back(known.substr(known.rfind('.') + 1));
  const std::string part = nearest_name(name.substr(name.rfind('.') + 1), last_parts);
  const auto found = std::find(last_parts.begin(), last_parts.end(), part);
  const std::string nearest = part.empty() ? nearest_name(name, names)
                                           : names[static_cast<size_t>(found - last_parts.begin())];
  fail(ErrorKind::kConfig, "no key is called '", given, "'.",
       nearest.empty() ? "" : concat(" Did you mean '", nearest, "'?"),
       " `tapestry help` lists the sections.");
}

std::string describe_sections() {
  std::string text = "Keys of a config, by section (tapestry help SECTION, tapestry help KEY):\n\n";
  for_each_section([&](const KeyEntry* section, const std::vector<const KeyEntry*>& keys) {
    if (section != nullptr) text += concat(section->name, ": ", section->meaning, '\n');
    std::string line = "   ";
    for (const KeyEntry* key : keys) {
      const std::string name = key->name.substr(key->name.rfind('.') + 1);
      if (line.size() + name.size() > 98) text += line + '\n', line = "   ";
      line += ' ' + name;
    }
    if (!keys.empty()) text += line + '\n';
  });
  return text;
}

std::string describe_all_keys() {
  std::string text;
  for (const KeyEntry& entry : key_entries()) {
    if (!text.empty()) text += '\n';
    text += lines_of(entry);
  }
  return text;
}

std::string key_reference_markdown() {
  std::string text =
      "<!-- Written by `tapestry help --markdown > configs/README.md`; a test compares the two. "
      "-->\n"
      "# The keys of a config\n\n"
      "A config is a YAML file with these keys. Each key can also be given on the command line, "
      "where it wins over\nthe file: `tapestry train config.yaml training.max_steps=500`. "
      "`tapestry help KEY` says the same as this page.\nOnly `task`, `output_dir`, `data.train` "
      "and `training.max_steps` (or `training.num_train_epochs`)\nmust be given. The other files "
      "of this folder are configs to start from.\n\n"
      "A key that a task does not know, or that has no effect beside the others, is an error. "
      "Paths of data start at the\nfolder of the config file, `output_dir` and `init_from` at the "
      "working directory.\n";
  for_each_section([&](const KeyEntry* section, const std::vector<const KeyEntry*>& keys) {
    if (section == nullptr) {
      text += "\n## Top level\n\n";
    } else {
      const bool nested = section->name.find('.') != std::string::npos;
      text += concat('\n', nested ? "### `" : "## `", section->name, "`\n\n", section->meaning);
      if (section->tasks != "all") text += concat(" Tasks: ", section->tasks, '.');
      text += '\n';
      if (!keys.empty()) text += '\n';
    }
    if (keys.empty()) return;
    text += "| key | type | default | bounds | meaning | tasks |\n|---|---|---|---|---|---|\n";
    for (const KeyEntry* key : keys) {
      const std::string name = key->name.substr(key->name.rfind('.') + 1);
      // A statement about the section is not repeated for each key.
      std::string tasks = key->tasks;
      if (section != nullptr && section->tasks != "all" && tasks.starts_with(section->tasks)) {
        tasks.erase(0, section->tasks.size());
        tasks.erase(0, tasks.find_first_not_of("; "));
      }
      text += concat("| `", name, "` | ", key->type, " | ", cell(key->preset), " | ",
                     cell(key->bounds), " | ", cell(key->meaning), " | ", cell(tasks), " |\n");
    }
  });
  return text;
}

}  // namespace tapestry
