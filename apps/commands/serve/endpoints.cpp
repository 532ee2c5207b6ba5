#include "apps/commands/serve/endpoints.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/request_body.h"
#include "core/base/nearest_name.h"

namespace tapestry {
namespace {

struct TypeRow {
  FieldType type;
  const char* name;    // in messages
  const char* schema;  // JSON
  bool (*fits)(const Json& value);
};

template <class Fits>
bool is_list_of(const Json& value, Fits fits) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, fits);
}
bool is_text(const Json& value) { return value.is_string(); }
bool is_texts(const Json& value) { return is_text(value) || is_list_of(value, is_text); }
bool is_integer(const Json& value) { return value.is_number_integer(); }
bool is_ids(const Json& value) { return is_list_of(value, is_integer); }

constexpr const char* kTextsSchema =
    R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})";

const TypeRow kTypes[] = {
    {FieldType::kText, "a text", R"({"type":"string"})", is_text},
    {FieldType::kTextOrTexts, "a text or a list of texts", kTextsSchema, is_texts},
    {FieldType::kInteger, "an integer", R"({"type":"integer"})", is_integer},
    {FieldType::kNumber, "a number", R"({"type":"number"})",
     [](const Json& value) { return value.is_number(); }},
    {FieldType::kBoolean, "true or false", R"({"type":"boolean"})",
     [](const Json& value) { return value.is_boolean(); }},
    {FieldType::kMessages, "a list of objects", R"({"type":"array","items":{"type":"object"}})",
     [](const Json& value) {
       return is_list_of(value, [](const Json& one) { return one.is_object(); });
     }},
    {FieldType::kPrompts, "a text, a list of texts, or tokens",
     R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}},)"
     R"({"type":"array","items":{"type":"integer"}},)"
     R"({"type":"array","items":{"type":"array","items":{"type":"integer"}}}]})",
     [](const Json& value) {
       return is_texts(value) || is_ids(value) || is_list_of(value, is_ids);
     }},
    {FieldType::kObject, "an object", R"({"type":"object"})",
     [](const Json& value) { return value.is_object(); }},
    {FieldType::kTextsByName, "an object of texts",
     R"({"type":"object","additionalProperties":{"type":"string"}})",
     [](const Json& value) { return value.is_object() && std::ranges::all_of(value, is_text); }},
    {FieldType::kFile, "a text", R"({"type":"string"})", is_text}};

// What clients send with any request, and what changes no answer.
constexpr std::array<std::string_view, 5> kOfClients = {"api_key", "user", "metadata", "store",
                                                        "service_tier"};

const TypeRow& row_of(FieldType type) {
  return *std::ranges::find(kTypes, type, [](const TypeRow& row) { return row.type; });
}

Json body_of(const Endpoint& endpoint) {
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : endpoint.fields) {
    Json schema = Json::parse(row_of(field.type).schema);
    schema["description"] = field.meaning;
    properties[field.name] = std::move(schema);
    if (field.required) required.push_back(field.name);
  }
  Json schema, body;
  schema["type"] = "object";
  schema["properties"] = std::move(properties);
  if (!required.empty()) schema["required"] = std::move(required);
  body["required"] = true;
  body["content"]["application/json"]["schema"] = schema;
  for (const Field& field : endpoint.fields) {
    if (field.type != FieldType::kFile) continue;
    schema["properties"][field.name]["format"] = "binary";
    body["content"]["multipart/form-data"]["schema"] = schema;
  }
  return body;
}

Json parameters_of(const Endpoint& endpoint) {
  Json list = Json::array();
  for (const Field& field : endpoint.fields) {
    list.push_back({{"name", field.name},
                    {"in", "query"},
                    {"required", field.required},
                    {"description", field.meaning},
                    {"schema", Json::parse(row_of(field.type).schema)}});
  }
  return list;
}

}  // namespace

Json openapi() {
  Json paths = Json::object();
  for (const Endpoint* endpoint : endpoints()) {
    std::string method = endpoint->method;
    std::ranges::transform(method, method.begin(), [](char c) { return std::tolower(c); });
    Json operation;
    operation["summary"] = endpoint->meaning;
    operation["responses"]["200"]["description"] = "the answer";
    operation["responses"]["default"]["description"] = "an error, as JSON";
    if (method == "post") operation["requestBody"] = body_of(*endpoint);
    if (method == "get" && !endpoint->fields.empty()) {
      operation["parameters"] = parameters_of(*endpoint);
    }
    if (endpoint->open) operation["security"] = Json::array();
    paths[endpoint->path][method] = std::move(operation);
  }
  Json key, description;
  key["key"] = Json::array();
  description["openapi"] = "3.0.3";
  description["info"]["title"] = "Tapestry";
  description["info"]["version"] = "1";
  description["security"] = Json::array({key});
  description["components"]["securitySchemes"]["key"]["type"] = "http";
  description["components"]["securitySchemes"]["key"]["scheme"] = "bearer";
  description["paths"] = std::move(paths);
  return description;
}

void read_form_values(const Endpoint& endpoint, Json& body) {
  for (const Field& field : endpoint.fields) {
    const bool is_value = field.type == FieldType::kInteger || field.type == FieldType::kNumber ||
                          field.type == FieldType::kBoolean ||
                          field.type == FieldType::kTextsByName;
    const auto found = body.find(field.name);
    if (!is_value || found == body.end() || !found->is_string()) continue;
    try {
      Json value = parse_json(found->get<std::string>());
      if (row_of(field.type).fits(value)) *found = std::move(value);
    } catch (const Json::exception&) {
      // It stays a text, which check_fields() refuses.
    }
  }
}

void check_fields(const Endpoint& endpoint, const Json& body) {
  std::vector<std::string> known;
  for (const Field& field : endpoint.fields) known.emplace_back(field.name);
  for (const auto& [name, value] : body.items()) {
    if (value.is_null() || std::ranges::count(known, name) + std::ranges::count(kOfClients, name)) {
      continue;
    }
    const std::string nearest = nearest_name(name, known);
    refuse(400, "unknown field '", name, "' of ", endpoint.path,
           nearest.empty() ? "; see /openapi.json." : concat("; did you mean '", nearest, "'?"));
  }
  for (const Field& field : endpoint.fields) {
    const auto found = body.find(field.name);
    const bool given = found != body.end() && !found->is_null();
    if (!given && field.required) refuse(400, "the field '", field.name, "' is missing.");
    if (!given || row_of(field.type).fits(*found)) continue;
    refuse(400, "the field '", field.name, "' must be ", row_of(field.type).name, ", got ",
           found->type_name(), found->is_array() && found->empty() ? " without members." : ".");
  }
}

Json error_json(const std::string& path, int status, const std::string& message) {
  if (!path.starts_with("/v1/")) return {{"error", message}};
  return {{"error",
           {{"message", message},
            {"type", status < 500 ? "invalid_request_error" : "server_error"},
            {"code", status}}}};
}

}  // namespace tapestry
