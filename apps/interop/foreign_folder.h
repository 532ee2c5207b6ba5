// A folder of Hugging Face's as it is read: private to the import.
#pragma once

#include <string>

#include "apps/checkpoint/safetensors.h"
#include "apps/interop/architectures/architectures.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/huggingface_import.h"

namespace tapestry::interop {

struct Folder {
  std::string path;
  const Architecture* architecture;
  Json config;
  TensorReader reader;
  TensorNames names;
};

/// import_model() of such a folder, which may have no other files; its path is a name then.
ImportedModel import_model(const Folder& folder);

/// That of config.json's model_type, or null.
const Architecture* architecture_of(const Json& config);
/// An object; without keys if there is no such file.
Json read_json_if_there(const std::string& path);
/// config.json, with its class's defaults for ids that it does not name.
Json config_with_defaults(const std::string& folder);
/// Throws Error(kData) for a class that is unknown, or weights in another format.
Folder open_folder(const std::string& path);

/// Checks tables that config.json calls tied. If the file has both and they differ, the second one
/// becomes a classifier of its own; models that share more than two tables cannot be untied so.
void compare_tied(const Folder& folder, Json& model, Reasons& reasons, Reasons& notes);

/// Every place of a text has the same bias of spans: it changes no probability, and ours has none.
inline constexpr const char* kUnreadBias = "span_head.bias";

}  // namespace tapestry::interop
