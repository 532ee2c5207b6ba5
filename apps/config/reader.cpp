#include "apps/config/reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "core/base/nearest_name.h"
#include "core/base/text.h"

namespace tapestry {

/// State that all sections of one reading share.
class ConfigSession {
 public:
  ConfigSession(ConfigReadOptions options, std::vector<ConfigProblem> problems)
      : options_(options), problems_(std::move(problems)) {}

  ConfigNode read(const ConfigNode& root, const std::function<void(ConfigSection&)>& bind) {
    root_ = &root;
    ConfigSection section(*this, root, "");
    bind(section);
    section.finish();
    explain_unknown_keys();
    if (options_.complain) throw_problems();
    return std::move(section.output_);
  }

  const ConfigReadOptions& options() const { return options_; }

  void add(const ConfigLocation& location, const std::string& text) {
    problems_.push_back({location.order, concat(location.where, ": ", text)});
  }

  /// Marks a section in which a value was refused.
  void mark_unsound(const std::string& section) { unsound_.insert(section); }
  bool is_sound(const std::string& section) const { return !unsound_.contains(section); }

  /// The place of the key with this full name, or of the innermost existing section around it.
  const ConfigLocation& locate(const std::string& full_name) const {
    const ConfigNode* node = root_;
    std::istringstream parts(full_name);
    for (std::string part; std::getline(parts, part, '.');) {
      const bool counts = part.find_first_not_of("0123456789") == std::string::npos;
      const bool list = node->kind == ConfigNode::Kind::kList;
      // section_list() does not count the entry of a list of one.
      if (list && !counts && node->items.size() == 1) node = &node->items[0];
      if (list && counts && std::stoul(part) < node->items.size()) {
        node = &node->items[std::stoul(part)];
      } else if (const ConfigEntry* entry = node->find(part)) {
        node = &entry->value;
      } else {
        break;
      }
    }
    return node->location;
  }

  void note(ConfigKey key) {
    if (options_.keys != nullptr) options_.keys->push_back(std::move(key));
  }
  /// The key noted last under this name applies; scalars and lists have a value.
  void note_value(const std::string& name, const ConfigNode* value) {
    if (options_.keys == nullptr) return;
    auto& keys = *options_.keys;
    const auto found = std::find_if(keys.rbegin(), keys.rend(),
                                    [&](const ConfigKey& key) { return key.name == name; });
    if (found == keys.rend()) return;
    found->applies = true;
    if (value == nullptr || found->type.starts_with("section")) return;
    if (value->kind == ConfigNode::Kind::kScalar) {
      found->value = value->text;
    } else {
      const std::string text = to_yaml(*value);
      found->value = text.substr(0, text.find('\n'));
    }
  }

  /// A key nobody read; explained at the end, when the keys of all sections are known.
  void add_unknown(const ConfigEntry& entry, std::string section, std::vector<std::string> known) {
    unknown_.push_back({entry.key, entry.location, std::move(section), std::move(known)});
  }

  void add_known(const std::string& section, const std::string& key) {
    known_.emplace_back(section, key);
  }

 private:
  struct Unknown {
    std::string key;
    ConfigLocation location;
    std::string section;
    std::vector<std::string> known;
  };

  void explain_unknown_keys() {
    for (const Unknown& unknown : unknown_) {
      std::string text = concat("unknown key '", unknown.key, "'");
      if (!unknown.section.empty()) text += concat(" in '", unknown.section, "'");
      add(unknown.location, text + advice(unknown));
    }
  }

  std::string advice(const Unknown& unknown) const {
    constexpr size_t kListable = 12;
    const std::string nearest = nearest_name(unknown.key, unknown.known);
    if (!nearest.empty()) return concat("; did you mean '", nearest, "'?");
    for (const auto& [section, key] : known_) {
      if (key != unknown.key || is_section(section.empty() ? key : concat(section, '.', key))) {
        continue;
      }
      return section.empty() ? concat("; '", key, "' belongs to the top level.")
                             : concat("; '", key, "' belongs to '", section, "'.");
    }
    if (unknown.known.empty() || unknown.known.size() > kListable) return ".";
    return concat("; known: ", join(unknown.known, ", "), '.');
  }

  bool is_section(const std::string& path) const {
    return std::any_of(known_.begin(), known_.end(),
                       [&](const auto& known) { return known.first == path; });
  }

  void throw_problems() {
    if (problems_.empty()) return;
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const auto& a, const auto& b) { return a.order < b.order; });
    if (problems_.size() == 1) throw Error(ErrorKind::kConfig, problems_[0].text);
    std::string text = concat(problems_.size(), " errors in the configuration:");
    for (const ConfigProblem& problem : problems_) text += "\n  " + problem.text;
    throw Error(ErrorKind::kConfig, text);
  }

  ConfigReadOptions options_;
  const ConfigNode* root_ = nullptr;
  std::set<std::string> unsound_;
  std::vector<ConfigProblem> problems_;
  std::vector<Unknown> unknown_;
  std::vector<std::pair<std::string, std::string>> known_;
};

namespace {

const ConfigNode& empty_map() {
  static const ConfigNode node = ConfigNode::map();
  return node;
}

ConfigNode number_node(const std::string& text) { return ConfigNode::scalar(text, false); }
ConfigNode string_node(const std::string& text) { return ConfigNode::scalar(text, true); }

/// Why the file cannot be read, or an empty string.
std::string unreadable(const std::string& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return concat("cannot be read: ", error.message());
  if (!exists) return "does not exist";
  if (std::filesystem::is_directory(path, error)) return "is a directory, expected a file";
  // A training reads its data for the tokenizer, for its checksum and for the model, and again when
  // it resumes; opening a pipe without a writer would block.
  if (std::filesystem::is_fifo(path, error)) {
    return "is a pipe, which is read only once, expected a file";
  }
  if (access(path.c_str(), R_OK) != 0) return concat("cannot be read: ", std::strerror(errno));
  return "";
}

/// Shortened for messages: nobody reads 10 kB of a path.
std::string shortened(const std::string& text) {
  constexpr size_t kMost = 200;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace

ConfigRange positive() {
  ConfigRange range;
  range.low = 0;
  range.low_open = true;
  range.text = "positive";
  return range;
}

ConfigRange at_least(double low) {
  ConfigRange range;
  range.low = low;
  range.text = "at least " + shortest(low);
  return range;
}

ConfigRange between(double low, double high) {
  ConfigRange range;
  range.low = low;
  range.high = high;
  range.text = concat("in [", shortest(low), ", ", shortest(high), ']');
  return range;
}

ConfigRange from_up_to_below(double low, double high) {
  ConfigRange range = between(low, high);
  range.high_open = true;
  range.text = concat("in [", shortest(low), ", ", shortest(high), ')');
  return range;
}

ConfigRange above_up_to(double low, double high) {
  ConfigRange range = between(low, high);
  range.low_open = true;
  range.text = concat("in (", shortest(low), ", ", shortest(high), ']');
  return range;
}

ConfigSection::ConfigSection(ConfigSession& session, const ConfigNode& node, std::string path)
    : session_(session),
      node_(node.kind == ConfigNode::Kind::kMap ? node : empty_map()),
      path_(std::move(path)) {
  output_.location = node.location;
  const bool usable = node.kind == ConfigNode::Kind::kMap || node.kind == ConfigNode::Kind::kNull;
  if (!usable) {
    const std::string who = path_.empty() ? "the configuration" : concat('\'', path_, '\'');
    complain_at(node.location, concat(who, " must be a map of keys, got ", node.describe(), '.'));
  }
}

std::string ConfigSection::full_name(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

const ConfigEntry* ConfigSection::find(const std::string& key) const {
  const ConfigEntry* const entry = node_.find(key);
  const bool counts = entry != nullptr && (!only_overrides_ || entry->value.location.is_override());
  return counts ? entry : nullptr;
}

void ConfigSection::replace_by_overrides(const std::vector<std::vector<std::string>>& groups) {
  std::set<size_t> file, overrides;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const std::string& key : groups[i]) {
      const ConfigEntry* const entry = node_.find(key);
      if (entry != nullptr) (entry->value.location.is_override() ? overrides : file).insert(i);
    }
  }
  only_overrides_ |= std::any_of(file.begin(), file.end(), [&](size_t i) {
    return !overrides.empty() && !overrides.contains(i);
  });
}

bool ConfigSection::has(const std::string& key) const {
  const ConfigEntry* entry = find(key);
  return entry != nullptr && entry->value.kind != ConfigNode::Kind::kNull;
}

const ConfigNode* ConfigSection::take(const std::string& key) {
  known_.push_back(key);
  session_.add_known(path_, key);
  const ConfigEntry* entry = find(key);
  return entry == nullptr ? nullptr : &entry->value;
}

void ConfigSection::know_section(const std::string& key) { session_.add_known(full_name(key), ""); }

const ConfigLocation& ConfigSection::location_of(const std::string& key) const {
  const ConfigEntry* entry = find(key);
  return entry == nullptr ? output_.location : entry->value.location;
}

void ConfigSection::complain_at(const ConfigLocation& location, const std::string& text) {
  session_.mark_unsound(path_);
  session_.add(location, text);
}

void ConfigSection::complain_of(const std::string& full_name, const std::string& text) {
  session_.add(session_.locate(full_name), text);
}

bool ConfigSection::is_sound(const std::string& section) const {
  return session_.is_sound(section);
}

void ConfigSection::note(const std::string& key, const char* type, const char* meaning,
                         const ConfigRange& range, std::vector<std::string> choices) {
  session_.note({.name = full_name(key),
                 .type = type,
                 .range = range,
                 .choices = std::move(choices),
                 .meaning = meaning,
                 .applies = false,
                 .required = demanded_.contains(key)});
}

void ConfigSection::demand(const std::string& key) {
  demanded_.insert(key);
  if (!session_.options().require_keys || given(key)) return;
  const std::string place = path_.empty() ? "at the top level" : concat("in '", path_, '\'');
  complain_at(output_.location, concat("missing key '", key, "' ", place, '.'));
}

void ConfigSection::refuse(const std::string& key, const std::string& why) {
  if (take(key) == nullptr || !session_.options().refuse_unused) return;
  session_.add(location_of(key), concat('\'', full_name(key), "' has no effect ", why, '.'));
}

void ConfigSection::mistyped(const std::string& key, const char* expected, const ConfigNode& got) {
  complain_at(got.location,
              concat('\'', full_name(key), "' must be ", expected, ", got ", got.describe(), '.'));
}

bool ConfigSection::in_range(const std::string& key, double value, const std::string& text,
                             const ConfigRange& range) {
  if (range.contains(value)) return true;
  complain(key, '\'', full_name(key), "' must be ", range.text, ", got ", text, '.');
  return false;
}

void ConfigSection::read_integer(const std::string& key, int64_t& value, int64_t low, int64_t high,
                                 const ConfigRange& range) {
  if (const ConfigNode* node = take(key)) {
    int64_t given = 0;
    if (node->kind != ConfigNode::Kind::kScalar || node->quoted ||
        !parse_yaml_integer(node->text, given)) {
      mistyped(key, "an integer", *node);
    } else if (given < low || given > high) {
      complain(key, '\'', full_name(key), "' must be in [", low, ", ", high, "], got ", given, '.');
    } else if (in_range(key, static_cast<double>(given), std::to_string(given), range)) {
      value = given;
    }
  }
  put(key, number_node(std::to_string(value)));
}

void ConfigSection::read_double(const std::string& key, double& value, const ConfigRange& range) {
  if (const ConfigNode* node = take(key)) {
    double given = 0;
    if (node->kind != ConfigNode::Kind::kScalar || node->quoted ||
        !parse_yaml_double(node->text, given)) {
      mistyped(key, "a number", *node);
    } else if (in_range(key, given, node->text, range)) {
      value = given;
    }
  }
  put(key, number_node(shortest(value)));
}

void ConfigSection::read_bool(const std::string& key, bool& value) {
  const ConfigNode* node = take(key);
  if (node != nullptr) {
    const std::string text = node->quoted ? "" : node->text;
    const bool yes = text == "true" || text == "True" || text == "TRUE";  // as YAML 1.2 has it
    const bool no = text == "false" || text == "False" || text == "FALSE";
    if (yes || no) {
      value = yes;
    } else {
      mistyped(key, "true or false", *node);
    }
  }
  put(key, number_node(value ? "true" : "false"));
}

void ConfigSection::read_string(const std::string& key, std::string& value) {
  const ConfigNode* node = take(key);
  if (node != nullptr) {
    if (node->kind == ConfigNode::Kind::kScalar) {
      value = node->text;
    } else {
      mistyped(key, "a text", *node);
    }
  }
  put(key, string_node(value));
}

void ConfigSection::read_list(const std::string& key, std::vector<double>& values,
                              const ConfigRange& range) {
  const ConfigNode* node = take(key);
  if (node != nullptr && node->kind != ConfigNode::Kind::kList) {
    mistyped(key, "a list of numbers", *node);
  } else if (node != nullptr) {
    std::vector<double> given;
    for (const ConfigNode& item : node->items) {
      double value = 0;
      const bool plain = item.kind == ConfigNode::Kind::kScalar && !item.quoted;
      if (!plain || !parse_yaml_double(item.text, value)) {
        mistyped(key, "a list of numbers", item);
      } else if (!range.contains(value)) {
        complain_at(item.location, concat("every number of '", full_name(key), "' must be ",
                                          range.text, ", got ", item.text, '.'));
      } else {
        given.push_back(value);
      }
    }
    if (given.size() == node->items.size()) values = std::move(given);
  }
  ConfigNode list = ConfigNode::list();
  for (const double value : values) list.items.push_back(number_node(shortest(value)));
  put(key, std::move(list));
}

void ConfigSection::read_list(const std::string& key, std::vector<std::string>& values) {
  const ConfigNode* node = take(key);
  if (node != nullptr && node->kind != ConfigNode::Kind::kList) {
    mistyped(key, "a list of texts", *node);
  } else if (node != nullptr) {
    std::vector<std::string> given;
    for (const ConfigNode& item : node->items) {
      if (item.kind == ConfigNode::Kind::kScalar) {
        given.push_back(item.text);
      } else {
        mistyped(key, "a list of texts", item);
      }
    }
    if (given.size() == node->items.size()) values = std::move(given);
  }
  ConfigNode list = ConfigNode::list();
  for (const std::string& value : values) list.items.push_back(string_node(value));
  put(key, std::move(list));
}

size_t ConfigSection::read_choice_index(const std::string& key,
                                        const std::vector<std::string>& names, size_t current,
                                        const std::string& with) {
  const ConfigNode* node = take(key);
  size_t chosen = current;
  if (node != nullptr) {
    const bool text = node->kind == ConfigNode::Kind::kScalar;
    const auto found = std::find(names.begin(), names.end(), text ? node->text : "");
    if (found != names.end()) {
      chosen = static_cast<size_t>(found - names.begin());
    } else {
      const std::string nearest = text ? nearest_name(node->text, names) : "";
      complain(key, '\'', full_name(key), "' must be ", names.size() == 1 ? "" : "one of ",
               join(names, ", "), with.empty() ? "" : " ", with, ", got ", node->describe(), '.',
               nearest.empty() ? "" : concat(" Did you mean '", nearest, "'?"));
    }
  }
  put(key, string_node(names[chosen]));
  return chosen;
}

void ConfigSection::read_input_file(const std::string& key, std::string& path,
                                    const char* meaning) {
  note(key, "file", meaning);
  if (const ConfigNode* node = take(key)) {
    const bool list_or_map =
        node->kind == ConfigNode::Kind::kList || node->kind == ConfigNode::Kind::kMap;
    if (list_or_map || (node->text.empty() && demanded_.contains(key))) {
      mistyped(key, "the path of a file", *node);
    } else if (node->text.empty()) {
      path.clear();
    } else {
      const std::filesystem::path base = node->location.directory;
      path = std::filesystem::absolute(base / node->text).lexically_normal().string();
      const std::string reason = session_.options().check_files ? unreadable(path) : "";
      if (!reason.empty()) {
        complain(key, '\'', full_name(key), "': file ", shortened(path), ' ', reason, '.');
      }
    }
  }
  put(key, string_node(path));
}

void ConfigSection::read_column(const std::string& key, std::string& value, const char* meaning) {
  note(key, "column", meaning);
  if (const ConfigNode* node = take(key)) {
    if (node->kind != ConfigNode::Kind::kScalar || node->text.empty()) {
      mistyped(key, "the number or the name of a column", *node);
    } else {
      value = node->text;
    }
  }
  int64_t number = 0;
  const bool counts = parse_yaml_integer(value, number) && std::to_string(number) == value;
  put(key, counts ? number_node(value) : string_node(value));
}

void ConfigSection::read_optional_list(const std::string& key, std::vector<std::string>& values,
                                       const char* meaning) {
  const char* const kind = type_name<std::vector<std::string>>();
  if (reads_optional(true, "", key, kind, !values.empty(), meaning)) read(key, values, meaning);
}

bool ConfigSection::reads_optional(bool applies, const std::string& why, const std::string& key,
                                   const char* kind, bool has_value, const char* meaning) {
  if (applies && (given(key) || has_value)) return true;
  note(key, kind, meaning);
  session_.note_value(full_name(key), nullptr);
  applies ? know(key) : refuse(key, why);
  return false;
}

void ConfigSection::read_column_if(bool applies, const std::string& why, const std::string& key,
                                   std::string& value, const char* meaning) {
  if (reads_optional(applies, why, key, "column", !value.empty(), meaning))
    read_column(key, value, meaning);
}

void ConfigSection::read_input_file_if(bool applies, const std::string& why, const std::string& key,
                                       std::string& path, const char* meaning) {
  if (reads_optional(applies, why, key, "file", !path.empty(), meaning))
    read_input_file(key, path, meaning);
}

void ConfigSection::read_output_path(const std::string& key, std::string& path,
                                     const char* meaning) {
  note(key, "folder", meaning);
  read_folder(key, path);
}

void ConfigSection::read_optional_path(const std::string& key, std::string& path,
                                       const char* meaning) {
  note(key, "folder", meaning);
  session_.note_value(full_name(key), nullptr);
  if (given(key) || !path.empty()) {
    read_folder(key, path);
  } else {
    know(key);
  }
}

void ConfigSection::read_folder(const std::string& key, std::string& path) {
  const ConfigNode* node = take(key);
  if (node != nullptr && (node->kind != ConfigNode::Kind::kScalar || node->text.empty())) {
    mistyped(key, "the path of a folder", *node);
  } else if (node != nullptr) {
    const std::string given = std::filesystem::absolute(node->text).lexically_normal();
    std::error_code error;
    if (session_.options().check_files && !std::filesystem::exists(given, error) && error) {
      complain(key, '\'', full_name(key), "': folder ", shortened(given),
               " cannot be used: ", error.message(), '.');
    } else {
      path = given;
    }
  }
  put(key, string_node(path));
}

void ConfigSection::bind_child(const ConfigNode* node, const std::string& path, ConfigNode& output,
                               const std::function<void(ConfigSection&)>& bind) {
  ConfigNode absent;
  absent.location = output_.location;
  ConfigSection child(session_, node == nullptr ? absent : *node, path);
  bind(child);
  child.finish();
  output = std::move(child.output_);
}

void ConfigSection::section(const std::string& key, const char* meaning,
                            const std::function<void(ConfigSection&)>& bind) {
  note(key, "section", meaning);
  ConfigNode output;
  bind_child(take(key), full_name(key), output, bind);
  put(key, std::move(output));
}

std::vector<const ConfigNode*> ConfigSection::take_maps(const std::string& key,
                                                        size_t current_size) {
  const ConfigNode* node = take(key);
  if (node == nullptr) return std::vector<const ConfigNode*>(current_size, nullptr);
  std::vector<const ConfigNode*> maps;
  if (node->kind == ConfigNode::Kind::kList) {
    for (const ConfigNode& item : node->items) maps.push_back(&item);
  } else if (node->kind != ConfigNode::Kind::kNull) {
    maps.push_back(node);
  }
  return maps;
}

void ConfigSection::put(const std::string& key, ConfigNode value) {
  session_.note_value(full_name(key), &value);
  output_.entries.push_back({key, {}, std::move(value)});
}

void ConfigSection::finish() {
  for (size_t i = 0; i < node_.entries.size(); ++i) {
    const ConfigEntry& entry = node_.entries[i];
    if (only_overrides_ && !entry.value.location.is_override()) continue;
    const ConfigEntry* first = node_.find(entry.key);
    if (first != &entry) {
      const std::string place = path_.empty() ? "" : concat(" in '", path_, '\'');
      complain_at(entry.location, concat("duplicate key '", entry.key, '\'', place,
                                         "; it stands first at ", first->location.where, '.'));
    } else if (std::find(known_.begin(), known_.end(), entry.key) == known_.end()) {
      session_.add_unknown(entry, path_, known_);
    }
  }
}

ConfigNode read_config(const ConfigNode& root, const std::function<void(ConfigSection&)>& bind,
                       ConfigReadOptions options, std::vector<ConfigProblem> problems) {
  ConfigSession session(options, std::move(problems));
  return session.read(root, bind);
}

}  // namespace tapestry
