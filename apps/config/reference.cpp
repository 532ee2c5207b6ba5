#include "apps/config/reference.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "apps/config/key_families.h"
#include "apps/config/section_serve.h"
#include "apps/config/task.h"
#include "core/base/nearest_name.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

/// "a, b or c"
std::string alternatives(const std::set<std::string>& list) { return join(list, ", ", " or "); }

/// Names of families that agree in something, with what they agree in, in their order.
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

/// "translation, classification": families of one task as one name where all are there.
std::string tasks_of(std::vector<std::string> families, const std::vector<KeyFamily>& all) {
  if (families.size() == all.size()) return "all";
  if (families.size() + 1 == all.size()) {
    for (const KeyFamily& family : all) {
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
  return join(families, ", ");
}

/// "with name: adam or adamw; not with type: linear", of all families together.
std::string choices_of(const std::string& name, const std::vector<KeySight>& sights) {
  std::map<std::string, ChoiceValues> all;
  for (const KeySight& sight : sights) {
    for (const auto& [key, values] : sight.choices) {
      all[key].with.insert(values.with.begin(), values.with.end());
      all[key].without.insert(values.without.begin(), values.without.end());
    }
  }
  std::string text;
  for (const auto& entry : all) {
    const std::string& key = entry.first;
    const ChoiceValues& values = entry.second;
    // Families that have no such choice: the key applies beside the value that they always have.
    const bool everywhere = std::all_of(sights.begin(), sights.end(), [&](const KeySight& sight) {
      return sight.choices.contains(key);
    });
    const bool positive = everywhere && values.with.size() <= values.without.size();
    text += concat(text.empty() ? "" : "; ", positive ? "with " : "not with ",
                   short_key_name(key, name), ": ",
                   alternatives(positive ? values.with : values.without));
  }
  return text;
}

KeyEntry entry_of(const std::string& name, const std::vector<KeyFamily>& families) {
  KeyEntry entry;
  entry.name = name;
  Groups tasks, presets, bounds, meanings;
  std::vector<KeySight> sights;
  for (const KeyFamily& family : families) {
    const KeySight sight = sight_of(family, name);
    if (sight.key == nullptr) continue;
    entry.type = sight.key->type;
    const bool choice = !sight.key->choices.empty();
    tasks.add(sight.probe, family.name);
    presets.add(sight.preset, family.name);
    bounds.add(choice ? join(sight.key->choices, ", ") : sight.key->range.text, family.name);
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

/// Of a key that no task has.
KeyEntry entry_of(const ConfigKey& key) {
  const bool choice = !key.choices.empty();
  return {.name = key.name,
          .type = key.type,
          .preset = key.required ? "required" : key.value,
          .bounds = choice ? join(key.choices, ", ") : key.range.text,
          .meaning = key.meaning,
          .tasks = ""};
}

/// Calls f(section, keys) for each section that has keys of its own: the top level, then in order.
void for_each_section(
    const std::function<void(const KeyEntry*, const std::vector<const KeyEntry*>&)>& f) {
  const auto keys_in = [](const std::string& section) {
    std::vector<const KeyEntry*> keys;
    for (const KeyEntry& entry : key_entries()) {
      if (!entry.is_section() && section_of_key(entry.name) == section) keys.push_back(&entry);
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
  text += entry.tasks.empty() ? "\n" : concat("\n    tasks: ", entry.tasks, '\n');
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
    const std::vector<KeyFamily>& all = key_families();
    std::vector<KeyEntry> list;
    const std::vector<std::string>& names = ordered_key_names();
    list.reserve(names.size());
    for (const std::string& name : names) list.push_back(entry_of(name, all));
    for (const ConfigKey& key : serve_keys()) list.push_back(entry_of(key));
    return list;
  }();
  return entries;
}

namespace {

// The key that a wrong name was meant to be: one of the same section, or one whose last part is
// like the last part of the name.
std::string nearest_key(const std::string& name, const std::vector<std::string>& names) {
  const std::string part = last_part_of_key(name);
  const std::string section = name.substr(0, name.size() - part.size());
  std::vector<std::string> beside, parts;
  for (const std::string& known : names) {
    parts.push_back(last_part_of_key(known));
    if (known == section + parts.back()) beside.push_back(parts.back());
  }
  const std::string own = section.empty() ? "" : nearest_name(part, beside);
  if (!own.empty()) return section + own;
  const auto found = std::find(parts.begin(), parts.end(), nearest_name(part, parts));
  return found == parts.end() ? nearest_name(name, names)
                              : names[static_cast<size_t>(found - parts.begin())];
}

}  // namespace

std::string describe_key(const std::string& given) {
  std::string name = given;
  for (const std::string same : {"data.valid.", "data.test."}) {
    if (name.starts_with(same)) name.replace(0, same.size(), "data.train.");
  }
  std::vector<std::string> names, matches;
  std::string text;
  for (const KeyEntry& entry : key_entries()) {
    names.push_back(entry.name);
    const bool own_name = last_part_of_key(entry.name) == name;
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
  const std::string nearest = nearest_key(name, names);
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
      const std::string name = last_part_of_key(key->name);
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
      "Paths of data start at the\nfolder of the config file, `output_dir`, `init_from` and "
      "`training.teacher` at the working directory.\nA key of the type `files` may name several by "
      "a "
      "pattern, `data/part-*.jsonl.zst`: `*`, `?` and `[...]` as in a shell. They are\nread one "
      "after the other, sorted by name. Patterns of `source` and `target` match equally many "
      "files, "
      "line by line.\n\n"
      "Three keys cut an update into parts. `training.gradient_accumulation_steps`: an update adds "
      "up the gradients of so many\nbatches, which belongs to the recipe. `training.splits`: a "
      "batch goes through the model in so many parts, by rows, which\nsaves memory; only rounding "
      "and the draws of dropout change. `distributed.parts`: the batches of an update are dealt\n"
      "out to ranks; the bits depend on the parts, not on the ranks.\n";
  for_each_section([&](const KeyEntry* section, const std::vector<const KeyEntry*>& keys) {
    if (section == nullptr) {
      text += "\n## Top level\n\n";
    } else {
      const bool nested = section->name.find('.') != std::string::npos;
      text += concat('\n', nested ? "### `" : "## `", section->name, "`\n\n", section->meaning);
      if (section->tasks != "all" && !section->tasks.empty())
        text += concat(" Tasks: ", section->tasks, '.');
      text += '\n';
      if (!keys.empty()) text += '\n';
    }
    if (keys.empty()) return;
    text += "| key | type | default | bounds | meaning | tasks |\n|---|---|---|---|---|---|\n";
    for (const KeyEntry* key : keys) {
      const std::string name = last_part_of_key(key->name);
      // What is said of the section need not be said of each key.
      std::string tasks = key->tasks;
      if (section != nullptr && section->tasks != "all" && !section->tasks.empty() &&
          tasks.starts_with(section->tasks)) {
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
