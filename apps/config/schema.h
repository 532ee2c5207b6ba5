// The keys of a config as a JSON Schema, with which editors complete and check a YAML file.
#pragma once

#include <string>

namespace tapestry {

/// JSON Schema of draft 7, indented. It holds names, types, bounds and choices of all keys, which
/// keys a task has, and which ones a choice of the same section takes away. What the schema accepts
/// may still be refused when it is read: files that are not there, sizes that do not divide.
std::string config_schema();

/// The same of the file that `tapestry serve` reads.
std::string serve_schema();

}  // namespace tapestry
