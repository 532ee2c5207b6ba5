#include "apps/config/schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "apps/config/key_families.h"
#include "apps/config/reference.h"
#include "apps/config/section_serve.h"
#include "apps/config/task.h"

namespace tapestry {
namespace {

using Json = nlohmann::ordered_json;

/// Sections with the keys of the first, which key families know.
constexpr const char* kCorpora[] = {"data.train", "data.valid", "data.test"};
constexpr const char* kCorpus = kCorpora[0];

bool is_corpus(const std::string& name) {
  return std::ranges::find(kCorpora, name) != std::end(kCorpora);
}

/// What some tasks have in common of a key: the widest of their bounds, all of their choices.
struct Shape {
  std::string type;
  std::vector<std::string> choices = {};
  ConfigRange range = {};
  bool required = true;  ///< in each of these tasks

  void add(const ConfigKey& key, bool is_required) {
    const bool first = type.empty();
    type = key.type;
    for (const std::string& choice : key.choices) {
      if (std::ranges::find(choices, choice) == choices.end()) choices.push_back(choice);
    }
    if (first || key.range.low < range.low) {
      range.low = key.range.low, range.low_open = key.range.low_open;
    }
    if (first || key.range.high > range.high) {
      range.high = key.range.high, range.high_open = key.range.high_open;
    }
    required &= is_required;
  }
};

/// A key in the families of one task, or of all.
struct View {
  Shape shape;
  /// The values of the choices in the key's own section beside which it has no effect.
  std::map<std::string, std::set<std::string>> without = {};
  std::map<std::string, std::set<std::string>> with = {};

  bool exists() const { return !shape.type.empty(); }
};

View view_of(const std::string& name, const TaskKind* task) {
  View view;
  for (const KeyFamily& family : key_families()) {
    if (task != nullptr && family.task != task) continue;
    const KeySight sight = sight_of(family, name);
    if (sight.key == nullptr) {
      view.shape.required = false;
      continue;
    }
    const ConfigKey* const always = find_applying(family.base, name);
    view.shape.add(*sight.key, always != nullptr && always->required);
    for (const KeyVariant& variant : family.variants) {
      if (const ConfigKey* key = find_applying(variant.reading, name)) {
        view.shape.add(*key, key->required);
      }
    }
    for (const auto& [choice, values] : sight.choices) {
      if (section_of_key(choice) != section_of_key(name)) continue;
      view.with[choice].insert(values.with.begin(), values.with.end());
      view.without[choice].insert(values.without.begin(), values.without.end());
    }
  }
  for (auto& [choice, values] : view.without) {
    std::erase_if(values,
                  [&](const std::string& value) { return view.with[choice].contains(value); });
  }
  return view;
}

/// The views of all keys, which take a moment each.
using Views = std::map<std::string, View>;

Views views_of(const TaskKind* task) {
  Views views;
  for (const std::string& name : ordered_key_names()) views.emplace(name, view_of(name, task));
  return views;
}

// YAML reads `true` and `1` as no texts; the config's reader takes their letters.
const Json kScalar = {"string", "number", "boolean"};

// Whole numbers without ".0".
Json number(double value) {
  constexpr double kLargest = 1e15;
  const bool whole = std::trunc(value) == value && std::abs(value) < kLargest;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

void add_bounds(Json& schema, const ConfigRange& range) {
  if (std::isfinite(range.low)) {
    schema[range.low_open ? "exclusiveMinimum" : "minimum"] = number(range.low);
  }
  if (std::isfinite(range.high)) {
    schema[range.high_open ? "exclusiveMaximum" : "maximum"] = number(range.high);
  }
}

Json choices_schema(const std::vector<std::string>& choices) {
  Json values = Json::array();
  for (const std::string& choice : choices) {
    values.push_back(choice);
    if (choice == "true" || choice == "false") values.push_back(choice == "true");
  }
  return {{"enum", values}};
}

Json value_schema(const Shape& shape) {
  if (!shape.choices.empty()) return choices_schema(shape.choices);
  Json schema;
  if (shape.type == "integer" || shape.type == "number") {
    schema["type"] = shape.type;
    add_bounds(schema, shape.range);
  } else if (shape.type == "true or false") {
    schema["type"] = "boolean";
  } else if (shape.type == "list of numbers") {
    Json item = {{"type", "number"}};
    add_bounds(item, shape.range);
    schema = {{"type", "array"}, {"items", item}};
  } else if (shape.type == "list of texts") {
    schema = {{"type", "array"}, {"items", {{"type", kScalar}}}};
  } else {
    schema["type"] = kScalar;
    if (shape.type.starts_with("file")) schema["type"].push_back("null");  // no file
  }
  return schema;
}

bool is_section(const Shape& shape) { return shape.type.starts_with("section"); }

std::vector<std::string> keys_in(const std::string& section) {
  std::vector<std::string> keys;
  for (const std::string& name : ordered_key_names()) {
    if (section_of_key(name) == section) keys.push_back(name);
  }
  return keys;
}

const KeyEntry& entry_of(const std::string& name) {
  return *std::ranges::find(key_entries(), name, &KeyEntry::name);
}

std::string description_of(const std::string& name) {
  const KeyEntry& entry = entry_of(name);
  std::string text = entry.meaning;
  if (!entry.preset.empty() && entry.preset != "required")
    text += " Default: " + entry.preset + '.';
  if (entry.tasks != "all") text += " Tasks: " + entry.tasks + '.';
  return text;
}

/// Of a choice of this section: what each of its values takes away.
Json rules_of(const std::string& section, const Views& views) {
  std::map<std::string, std::map<std::string, Json>> taken;  // choice -> value -> keys
  for (const std::string& name : keys_in(section)) {
    const View& view = views.at(name);
    for (const auto& [choice, values] : view.without) {
      for (const std::string& value : values) {
        taken[choice][value][last_part_of_key(name)] = false;
      }
    }
  }
  Json rules = Json::array();
  for (const auto& [choice, values] : taken) {
    const std::string key = last_part_of_key(choice);
    for (const auto& [value, keys] : values) {
      rules.push_back({{"if", {{"properties", {{key, {{"const", value}}}}}, {"required", {key}}}},
                       {"then", {{"properties", keys}}}});
    }
  }
  return rules;
}

Json section_schema(const std::string& section, const Views& views);

Json key_schema(const std::string& name, const Views& views) {
  const View& view = views.at(name);
  Json schema;
  if (is_corpus(name)) {
    const Json corpus = {{"$ref", "#/definitions/corpus"}};
    schema["anyOf"] = {corpus, {{"type", "array"}, {"items", corpus}}};
    if (name == kCorpus) {
      schema["anyOf"][1]["minItems"] = 1;
    } else {
      schema["anyOf"].push_back({{"type", "null"}});
    }
  } else if (is_section(view.shape)) {
    schema = section_schema(name, views);
  } else {
    schema = value_schema(view.shape);
  }
  schema["description"] = description_of(name);
  return schema;
}

/// Required, unless num_train_epochs is given.
constexpr const char* kMaxSteps = "training.max_steps";

/// Of the files of a corpus another one may stand in its place.
bool is_required(const std::string& name, const Shape& shape) {
  return shape.required && name != kMaxSteps && section_of_key(name) != kCorpus;
}

Json section_schema(const std::string& section, const Views& views) {
  Json schema = {{"type", "object"}, {"additionalProperties", false}};
  Json required = Json::array();
  for (const std::string& name : keys_in(section)) {
    const std::string key = last_part_of_key(name);
    schema["properties"][key] = key_schema(name, views);
    const Shape& shape = views.at(name).shape;
    const bool holds_required = is_section(shape) && schema["properties"][key].contains("required");
    if (is_required(name, shape) || holds_required) required.push_back(key);
  }
  if (section == section_of_key(kMaxSteps)) {
    schema["anyOf"] = {{{"required", {"max_steps"}}}, {{"required", {"num_train_epochs"}}}};
  }
  if (!required.empty()) schema["required"] = required;
  const Json rules = rules_of(section, views);
  if (!rules.empty()) schema["allOf"] = rules;
  if (!schema.contains("required") && section != kCorpus) schema["type"] = {"object", "null"};
  return schema;
}

/// How a section of one task differs from that of all; null where it does not.
Json narrowed(const std::string& section, const Views& all, const Views& own) {
  Json properties, required;
  for (const std::string& name : keys_in(section)) {
    const std::string key = last_part_of_key(name);
    const Shape &wide = all.at(name).shape, &narrow = own.at(name).shape;
    if (is_required(name, narrow) && !is_required(name, wide)) required.push_back(key);
    if (!own.at(name).exists()) {
      properties[key] = false;
    } else if (is_section(narrow)) {
      if (is_corpus(name)) continue;  // below: lists, too
      Json inner = narrowed(name, all, own);
      if (!inner.is_null()) properties[key] = std::move(inner);
    } else if (value_schema(narrow) != value_schema(wide)) {
      properties[key] = value_schema(narrow);
    }
  }
  if (section == section_of_key(kCorpus)) {
    const Json corpus = narrowed(kCorpus, all, own);
    if (!corpus.is_null()) {
      const Json each = {
          {"if", {{"type", "array"}}}, {"then", {{"items", corpus}}}, {"else", corpus}};
      for (const char* name : kCorpora) properties[last_part_of_key(name)] = each;
    }
  }
  Json rules = rules_of(section, own);
  const Json common = rules_of(section, all);
  Json more = Json::array();
  for (Json& rule : rules) {
    if (std::ranges::find(common, rule) == common.end()) more.push_back(std::move(rule));
  }
  Json schema;
  if (!properties.is_null()) schema["properties"] = std::move(properties);
  if (!required.is_null()) schema["required"] = std::move(required);
  if (!more.empty()) schema["allOf"] = std::move(more);
  return schema;
}

/// Of keys that do not depend on each other; sections among them are required.
Json plain_section(const std::vector<ConfigKey>& keys, const std::string& section) {
  Json schema = {{"type", "object"}, {"additionalProperties", false}};
  Json required = Json::array();
  for (const ConfigKey& key : keys) {
    if (section_of_key(key.name) != section) continue;
    Shape shape;
    shape.add(key, key.required);
    Json own;
    if (!is_section(shape)) {
      own = value_schema(shape);
    } else if (shape.type == "section") {
      own = plain_section(keys, key.name);
    } else {  // or a list of them
      const Json one = plain_section(keys, key.name);
      own["anyOf"] = Json::array({one, {{"type", "array"}, {"minItems", 1}, {"items", one}}});
    }
    own["description"] = key.meaning;
    const std::string name = last_part_of_key(key.name);
    if (key.required || is_section(shape)) required.push_back(name);
    schema["properties"][name] = std::move(own);
  }
  if (!required.empty()) schema["required"] = required;
  return schema;
}

}  // namespace

std::string config_schema() {
  const Views all = views_of(nullptr);
  Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                 {"title", "Config of a Tapestry run"},
                 {"description", "Written by `tapestry help --schema > configs/schema.json`."}};
  schema.update(section_schema("", all));
  for (const TaskKind* task : task_kinds()) {
    schema["allOf"].push_back(
        {{"if", {{"properties", {{"task", {{"const", task->name}}}}}, {"required", {"task"}}}},
         {"then", narrowed("", all, views_of(task))}});
  }
  schema["definitions"]["corpus"] = section_schema(kCorpus, all);
  return schema.dump(1) + '\n';
}

std::string serve_schema() {
  Json schema = {
      {"$schema", "http://json-schema.org/draft-07/schema#"},
      {"title", "File of `tapestry serve`"},
      {"description", "Written by `tapestry help serve --schema > configs/serve.schema.json`."}};
  schema.update(plain_section(serve_keys(), ""));
  return schema.dump(1) + '\n';
}

}  // namespace tapestry
