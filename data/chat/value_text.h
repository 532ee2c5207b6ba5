// Values of chat templates as text: Python's str() and repr(), and JSON.
#pragma once

#include <string>

#include "data/chat/value.h"

namespace tapestry::jinja {

/// Python's str(); an undefined value is "". Throws Problem for namespaces and functions.
std::string to_text(const Value& value);
/// Python's repr().
std::string to_repr(const Value& value);

/// How json.dumps() writes. The defaults are those of the filter tojson of transformers, which
/// escapes no HTML.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string indent = {};  ///< of each level; lines are broken if `in_lines`
  bool in_lines = false;
  std::string comma = ", ";
  std::string colon = ": ";
};

/// Throws Problem for values that JSON does not have.
std::string to_json(const Value& value, const JsonStyle& style = {});

}  // namespace tapestry::jinja
