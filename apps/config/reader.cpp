#include "apps/config/reader.h"

#include "apps/config/session.h"

namespace tapestry {

namespace {

const ConfigNode& empty_map() {
  static const ConfigNode node = ConfigNode::map();
  return node;
}

}  // namespace

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
  if (std::ranges::find(known_, key) == known_.end()) known_.push_back(key);
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
  const ConfigReadOptions& options = session_.options();
  if (take(key) == nullptr || !options.refuse_unused) return;
  if (options.of_overrides_only && !location_of(key).is_override()) return;
  session_.add(location_of(key), concat('\'', full_name(key), "' has no effect ", why, '.'));
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
