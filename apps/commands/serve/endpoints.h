// Every path that the server answers: a row each, which requests are checked by and the OpenAPI
// description is made of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/commands/serve/call.h"
#include "apps/commands/serve/service.h"

namespace tapestry {

/// What a field of a body may be.
enum class FieldType {
  kText,
  kTextOrTexts,
  kInteger,
  kNumber,
  kBoolean,
  kMessages,  ///< a list of objects
  kPrompts,   ///< a text, texts, token ids, or lists of those
  kObject,
  kTextsByName,  ///< an object of texts
  kFile          ///< a text, or a file of multipart/form-data
};

struct Field {
  const char* name;
  FieldType type;
  const char* meaning;
  bool required = false;
};

struct Endpoint {
  const char* method;
  const char* path;
  const char* meaning;
  std::vector<Field> fields;  ///< of the body, or of the address if there is none
  Reply (*answer)(const Service& service, const Call& call);
  bool open = false;  ///< needs no key
};

/// All of them.
std::span<const Endpoint* const> endpoints();

/// The description of all endpoints, for OpenAPI 3.0.
Json openapi();

/// Forms have only texts: makes numbers, truth values and objects of those whose fields are that.
void read_form_values(const Endpoint& endpoint, Json& body);

/// Throws HttpError(400) for a body with unknown fields or fields of other types, or which lacks a
/// required one. Null is as good as none.
void check_fields(const Endpoint& endpoint, const Json& body);

/// An error as clients of the path read it.
Json error_json(const std::string& path, int status, const std::string& message);

}  // namespace tapestry
