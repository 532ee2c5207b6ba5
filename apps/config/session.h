// What all sections of one reading of a config share: its problems and the keys that were met;
// private to apps/config/.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/reader.h"
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
    if (unknown.known.empty()) return ".";
    if (unknown.known.size() <= kListable) {
      return concat("; known: ", join(unknown.known, ", "), '.');
    }
    const std::string below = nearest_below(unknown);
    if (!below.empty()) return concat("; did you mean '", below, "'?");
    const std::string what = unknown.section.empty() ? "" : " " + unknown.section;
    return concat("; `tapestry help", what, "` lists the keys.");
  }

  // A key of a section within its own that it may be meant to be, or "".
  std::string nearest_below(const Unknown& unknown) const {
    std::vector<std::string> keys, paths;
    for (const auto& [section, key] : known_) {
      if (key.empty() || unknown.section.empty()) continue;
      if (!section.starts_with(unknown.section + '.')) continue;
      keys.push_back(key);
      paths.push_back(concat(section, '.', key));
    }
    const std::string nearest = nearest_name(unknown.key, keys);
    if (nearest.empty()) return "";
    return paths[static_cast<size_t>(std::ranges::find(keys, nearest) - keys.begin())];
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

inline ConfigNode number_node(const std::string& text) { return ConfigNode::scalar(text, false); }
inline ConfigNode string_node(const std::string& text) { return ConfigNode::scalar(text, true); }

}  // namespace tapestry
