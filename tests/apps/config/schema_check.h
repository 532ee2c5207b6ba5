// Whether a config is valid by the JSON Schema of all keys, as an editor would tell.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include "apps/config/schema.h"
#include "apps/config/tree.h"

namespace tapestry {

/// As YAML 1.2 reads it.
inline nlohmann::json json_of(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return nullptr;
    case ConfigNode::Kind::kList: {
      nlohmann::json list = nlohmann::json::array();
      for (const ConfigNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case ConfigNode::Kind::kMap: {
      nlohmann::json map = nlohmann::json::object();
      for (const ConfigEntry& entry : node.entries) map[entry.key] = json_of(entry.value);
      return map;
    }
    case ConfigNode::Kind::kScalar:
      break;
  }
  int64_t integer = 0;
  double number = 0;
  if (node.quoted) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (parse_yaml_integer(node.text, integer)) return integer;
  if (parse_yaml_double(node.text, number) && std::isfinite(number)) return number;
  return node.text;
}

class SchemaCheck {
 public:
  explicit SchemaCheck(const std::string& schema = config_schema())
      : document_(nlohmann::json::parse(schema)) {
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(document_), schema_);
  }

  /// What the schema says against it; empty: nothing.
  std::string problems(const ConfigNode& config) {
    const nlohmann::json json = json_of(config);
    valijson::ValidationResults results;
    valijson::Validator validator;
    if (validator.validate(schema_, valijson::adapters::NlohmannJsonAdapter(json), &results)) {
      return "";
    }
    std::string text = "invalid";
    for (valijson::ValidationResults::Error error; results.popError(error);) {
      text += '\n';
      for (const std::string& part : error.context) text += part;
      text += ": " + error.description;
    }
    return text;
  }
  /// Of a YAML text with overrides.
  std::string problems(const std::string& yaml, const std::vector<std::string>& overrides) {
    ConfigNode root = parse_config_text(yaml, "config", "");
    std::vector<ConfigProblem> problems_of_overrides;
    for (const std::string& text : overrides) {
      apply_override(root, text, 0, problems_of_overrides);
    }
    return problems(root);
  }

 private:
  nlohmann::json document_;
  valijson::Schema schema_;
};

}  // namespace tapestry
