// YAML text as a tree with the place of every key and value. yaml-cpp's own Node silently drops
// duplicate keys, so the tree is built from its parser events instead.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tapestry {

/// The place of a piece of the configuration.
struct ConfigLocation {
  std::string where;      ///< "configs/base.yaml:12:3" or "command line: training.max_steps=9"
  std::string directory;  ///< relative data paths start here; empty: the working directory
  int64_t order = 0;      ///< errors are reported in this order

  bool is_override() const;  ///< on the command line
};

struct ConfigEntry;

struct ConfigNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text;                  ///< kScalar
  bool quoted = false;               ///< kScalar: written in quotes, so surely a string
  std::vector<ConfigNode> items;     ///< kList
  std::vector<ConfigEntry> entries;  ///< kMap, in file order, duplicates included
  ConfigLocation location;

  static ConfigNode map(ConfigLocation location = {});
  static ConfigNode list(ConfigLocation location = {});
  static ConfigNode scalar(std::string text, bool quoted);

  /// The first entry with this key, or nullptr.
  const ConfigEntry* find(const std::string& key) const;
  ConfigEntry* find(const std::string& key);
  /// "'abc'", "4096.5", "a list", "a map" or "nothing", for messages.
  std::string describe() const;
};

struct ConfigEntry {
  std::string key;
  ConfigLocation location;
  ConfigNode value;
};

/// One error; read_config collects all of them before it throws.
struct ConfigProblem {
  int64_t order = 0;
  std::string text;
};

/// Parses one YAML (or JSON) document. `name` stands in the locations; its relative data paths
/// start at `directory`. Throws Error(kConfig) with `name:line:column` on a syntax error, a second
/// document, an anchor, an alias, a merge key, a tag or a key that is not plain text.
ConfigNode parse_config_text(const std::string& text, const std::string& name,
                             const std::string& directory);

/// Parses the file at `path`. Throws Error(kConfig) also when it cannot be read.
ConfigNode parse_config_file(const std::string& path);

/// Applies one command-line override "section.key=value" (the value is YAML, the path may count
/// list entries from 0: data.train.0.source=...). `index` orders it among the overrides. Returns
/// false and appends to `problems` when the override makes no sense.
bool apply_override(ConfigNode& root, const std::string& override_text, int index,
                    std::vector<ConfigProblem>& problems);

/// A key and its value, as an option of a command line gives them.
struct KeyOverride {
  std::string option;  ///< "--beam-size", for messages
  std::string key;     ///< "num_beams"
  std::string value;
};
/// Sets the keys of a section, which must be a map, as options give them: after all of
/// apply_override().
void apply_options(ConfigNode& section, const std::vector<KeyOverride>& options);
/// The place of a value that an option gives, `index` of them before it.
ConfigLocation location_of_option(const std::string& option, const std::string& value, int index);
/// Gives a node, and all in it, one place.
void relocate(ConfigNode& node, const ConfigLocation& location);

/// YAML in block style that parses back to an equal tree; only Unicode's 66 noncharacters, which no
/// text holds, become U+FFFD.
std::string to_yaml(const ConfigNode& node);
/// Each scalar by its path: "data.train.0.source" -> "train.de". Empty values are left out.
std::map<std::string, std::string> flat_keys(const ConfigNode& node);
/// The same tree as indented JSON.
std::string to_json(const ConfigNode& node);

/// YAML 1.2 core numbers, whole text or nothing: "1e-4", ".5", "-3".
bool parse_yaml_double(const std::string& text, double& value);
bool parse_yaml_integer(const std::string& text, int64_t& value);

/// The shortest decimal text that reads back to the same double.
std::string shortest(double value);

}  // namespace tapestry
