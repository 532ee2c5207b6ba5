#include "apps/config/tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

constexpr int64_t kCommandLineOrder = int64_t{1} << 40;
constexpr int64_t kOptionsOrder = kCommandLineOrder + (int64_t{1} << 32);

/// Builds the tree from the parser's events.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string name, std::string directory)
      : name_(std::move(name)), directory_(std::move(directory)) {}

  ConfigNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    reject_anchor(mark, anchor);
    ConfigNode node;
    node.location = locate(mark);
    add(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    reject(mark, "aliases (*name) are not supported; write the value out.");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    reject_anchor(mark, anchor);
    reject_tag(mark, tag);
    if (find_invalid_utf8(value) != std::string::npos) reject(mark, "the text is not UTF-8.");
    ConfigNode node = ConfigNode::scalar(value, tag == "!");
    node.location = locate(mark);
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    reject_anchor(mark, anchor);
    reject_tag(mark, tag);
    open(mark, ConfigNode::list(locate(mark)));
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    reject_anchor(mark, anchor);
    reject_tag(mark, tag);
    open(mark, ConfigNode::map(locate(mark)));
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    ConfigNode node;
    bool has_key = false;  // kMap: the last entry still waits for its value
  };

  ConfigLocation locate(const YAML::Mark& mark) const {
    return {concat(name_, ':', mark.line + 1, ':', mark.column + 1), directory_, mark.pos};
  }

  [[noreturn]] void reject(const YAML::Mark& mark, const char* reason) const {
    fail(ErrorKind::kConfig, locate(mark).where, ": ", reason);
  }
  void reject_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) reject(mark, "anchors (&name) are not supported; write the value out.");
  }
  void reject_tag(const YAML::Mark& mark, const std::string& tag) const {
    const bool implicit = tag.empty() || tag == "?" || tag == "!";
    if (!implicit) reject(mark, "tags (!name) are not supported.");
  }

  bool expects_key() const {
    return !stack_.empty() && stack_.back().node.kind == ConfigNode::Kind::kMap &&
           !stack_.back().has_key;
  }

  void open(const YAML::Mark& mark, ConfigNode node) {
    if (expects_key()) {
      // The parser also takes an unclosed "{a: b" on one line for a key.
      reject(mark, "a key must be plain text, got a list or a map; is a bracket left open?");
    }
    stack_.push_back({std::move(node)});
  }

  void close() {
    ConfigNode node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(ConfigNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
    } else if (stack_.back().node.kind == ConfigNode::Kind::kList) {
      stack_.back().node.items.push_back(std::move(node));
    } else {
      add_to_map(std::move(node));
    }
  }

  void add_to_map(ConfigNode node) {
    Frame& frame = stack_.back();
    if (frame.has_key) {
      ConfigEntry& entry = frame.node.entries.back();
      // The parser puts an absent value at the next token; users look at the key.
      if (node.kind == ConfigNode::Kind::kNull) node.location = entry.location;
      entry.value = std::move(node);
    } else {
      if (node.kind != ConfigNode::Kind::kScalar || node.text.empty()) {
        fail(ErrorKind::kConfig, node.location.where, ": a key must be plain text, got nothing.");
      }
      if (node.text == "<<" && !node.quoted) {
        fail(ErrorKind::kConfig, node.location.where,
             ": merge keys (<<) are not supported; write the keys out.");
      }
      frame.node.entries.push_back({node.text, node.location, {}});
    }
    frame.has_key = !frame.has_key;
  }

  std::string name_;
  std::string directory_;
  ConfigNode root_;
  std::vector<Frame> stack_;
};

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream stream(path);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  if (!path.empty() && path.back() == '.') parts.emplace_back();
  return parts;
}

bool is_index(const std::string& text) {
  return !text.empty() && text.size() < 7 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

/// The child of `node` named `part`, created if a map lacks it. Returns nullptr and sets `reason`
/// when `node` can have no such child.
ConfigNode* descend(ConfigNode& node, const std::string& path, const std::string& part,
                    const ConfigLocation& location, std::string& reason) {
  // A list without entries, which a resolved config has, gets its first one so.
  const bool empty = node.kind == ConfigNode::Kind::kList && node.items.empty();
  if (node.kind == ConfigNode::Kind::kNull || (empty && !is_index(part))) {
    node = ConfigNode::map(location);
  }
  if (node.kind == ConfigNode::Kind::kMap) {
    if (ConfigEntry* entry = node.find(part)) return &entry->value;
    node.entries.push_back({part, location, {}});
    node.entries.back().value.location = location;
    return &node.entries.back().value;
  }
  if (node.kind == ConfigNode::Kind::kScalar) {
    reason = concat("'", path, "' is ", node.describe(), " and has no key '", part, "'.");
  } else if (!is_index(part)) {
    reason = concat("'", path, "' is a list; name its entry by number, as in ", path, ".0.", part,
                    ", or give the whole list.");
  } else if (std::stoul(part) >= node.items.size()) {
    reason = concat("'", path, "' has ", node.items.size(), " entries; ", part,
                    " is out of range (they count from 0).");
  } else {
    return &node.items[std::stoul(part)];
  }
  return nullptr;
}

/// Parses an override's value; its syntax errors name the override instead of a line.
// True for what numbers, truth values and choices may be, whatever white space is around it.
bool is_word(const std::string& text) {
  const std::string_view middle = strip(text);
  return std::ranges::all_of(middle, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_.+-").find(static_cast<char>(c)) < 4;
  });
}

// The shell has said where a text ends: nothing of a plain one is a comment, or white space around
// it.
ConfigNode parse_override_value(const std::string& text, const std::string& where) {
  try {
    ConfigNode value = parse_config_text(text, "value", "");
    const bool plain = value.kind == ConfigNode::Kind::kScalar && !value.quoted;
    const bool nothing = value.kind == ConfigNode::Kind::kNull && text.find('#') < text.size();
    if ((plain || nothing) && !is_word(text) && text.find('\n') == std::string::npos) {
      value = ConfigNode::scalar(text, /*quoted=*/false);
    }
    return value;
  } catch (const Error& error) {
    const std::string message = error.what();
    const size_t colon = message.find(": ");
    fail(ErrorKind::kConfig, where, ": ", message.substr(colon + 2));
  }
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

bool ConfigLocation::is_override() const { return order >= kCommandLineOrder; }

ConfigNode ConfigNode::map(ConfigLocation location) {
  ConfigNode node;
  node.kind = Kind::kMap;
  node.location = std::move(location);
  return node;
}

ConfigNode ConfigNode::list(ConfigLocation location) {
  ConfigNode node;
  node.kind = Kind::kList;
  node.location = std::move(location);
  return node;
}

ConfigNode ConfigNode::scalar(std::string text, bool quoted) {
  ConfigNode node;
  node.kind = Kind::kScalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

const ConfigEntry* ConfigNode::find(const std::string& key) const {
  for (const ConfigEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

ConfigEntry* ConfigNode::find(const std::string& key) {
  return const_cast<ConfigEntry*>(std::as_const(*this).find(key));
}

std::string ConfigNode::describe() const {
  double number = 0;
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
    case Kind::kScalar:
      break;
  }
  constexpr size_t kMost = 100;  // nobody reads 10 kB in a message
  const std::string shown = text.size() > kMost ? text.substr(0, kMost) + "..." : text;
  if (quoted) return concat("the string \"", shown, '"');
  return parse_yaml_double(text, number) ? text : concat('\'', shown, '\'');
}

ConfigNode parse_config_text(const std::string& text, const std::string& name,
                             const std::string& directory) {
  std::istringstream stream(text);
  TreeBuilder builder(name, directory);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      ConfigNode empty;
      empty.location = {name + ":1:1", directory, 0};
      return empty;
    }
    ConfigNode root = builder.take();
    TreeBuilder second(name, directory);
    if (parser.HandleNextDocument(second)) {
      fail(ErrorKind::kConfig, second.take().location.where,
           ": expected one YAML document, got a second one.");
    }
    return root;
  } catch (const YAML::Exception& error) {
    fail(ErrorKind::kConfig, name, ':', error.mark.line + 1, ':', error.mark.column + 1,
         ": YAML syntax error: ", error.msg, '.');
  }
}

ConfigNode parse_config_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    fail(ErrorKind::kConfig, path, ": expected a YAML file, got a directory.");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::kConfig, path, ": cannot be read: ", std::strerror(errno), '.');
  // Nobody writes so much by hand, and a device has no end.
  constexpr size_t kMostBytes = size_t{4} << 20;
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.find('\0') != std::string::npos) {
    fail(ErrorKind::kConfig, path, ": expected a YAML file, got one that is not text.");
  }
  if (text.size() > kMostBytes) {
    fail(ErrorKind::kConfig, path, ": must have at most ", kMostBytes, " bytes.");
  }
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return parse_config_text(text, path, directory);
}

bool apply_override(ConfigNode& root, const std::string& override_text, int index,
                    std::vector<ConfigProblem>& problems) {
  ConfigLocation location;
  location.where = "command line: " + override_text;
  location.order = kCommandLineOrder + index;
  const auto reject = [&](const std::string& reason) {
    problems.push_back({location.order, concat(location.where, ": ", reason)});
    return false;
  };

  const size_t equals = override_text.find('=');
  if (equals == std::string::npos) return reject("expected section.key=value.");
  const std::vector<std::string> path = split_path(override_text.substr(0, equals));
  if (path.empty()) return reject("expected a key before '='.");

  ConfigNode value;
  try {
    value = parse_override_value(override_text.substr(equals + 1), location.where);
  } catch (const Error& error) {
    problems.push_back({location.order, error.what()});
    return false;
  }
  relocate(value, location);

  ConfigNode* node = &root;
  std::string walked;
  for (const std::string& part : path) {
    if (part.empty()) return reject("a part of the key is empty.");
    std::string reason;
    node = descend(*node, walked, part, location, reason);
    if (node == nullptr) return reject(reason);
    walked += (walked.empty() ? "" : ".") + part;
  }
  *node = std::move(value);
  return true;
}

void relocate(ConfigNode& node, const ConfigLocation& location) {
  node.location = location;
  for (ConfigNode& item : node.items) relocate(item, location);
  for (ConfigEntry& entry : node.entries) {
    entry.location = location;
    relocate(entry.value, location);
  }
}

ConfigLocation location_of_option(const std::string& option, const std::string& value, int index) {
  return {.where = concat(option, ' ', value), .directory = "", .order = kOptionsOrder + index};
}

void apply_options(ConfigNode& section, const std::vector<KeyOverride>& options) {
  int index = 0;
  for (const KeyOverride& given : options) {
    ConfigNode value = ConfigNode::scalar(given.value, /*quoted=*/false);
    value.location = location_of_option(given.option, given.value, index++);
    // A key that two options give stays there twice, which the reader refuses.
    std::erase_if(section.entries, [&](const ConfigEntry& old) {
      return old.key == given.key && old.location.order < kOptionsOrder;
    });
    section.entries.push_back({given.key, value.location, std::move(value)});
  }
}

std::map<std::string, std::string> flat_keys(const ConfigNode& node) {
  std::map<std::string, std::string> keys;
  flatten(node, "", keys);
  return keys;
}

}  // namespace tapestry
