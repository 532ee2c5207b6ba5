#include "apps/interop/foreign_folder.h"

#include <filesystem>

#include "apps/checkpoint/file_names.h"
#include "apps/interop/huggingface_import.h"
#include "apps/interop/misfit_report.h"
#include "apps/interop/sentence_vectors.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

std::string other_format(const std::string& folder, const std::string& file) {
  return concat(folder, " has its weights in ", file,
                ", expected safetensors. With their program: load the model there, and save it "
                "again (save_pretrained)");
}

// Releases of before kept the transformer in a folder of its own.
void refuse_other_place(const std::string& folder) {
  if (!has_modules(folder)) return;
  const std::string part = folder_of_transformer(folder);
  if (part.empty() || has_safetensors(folder)) return;
  fail(ErrorKind::kData, "[import] ", folder, " has its weights in ", part,
       "/, as modules.json says: move the files of that folder beside modules.json, and make the "
       "path of the Transformer there \"\".");
}

}  // namespace

const Architecture* architecture_of(const Json& config) {
  const Json type = config.value("model_type", Json());
  return type.is_string() ? find_architecture(type.get<std::string>()) : nullptr;
}

void refuse_other_format(const std::string& folder, const std::string& file) {
  fail(ErrorKind::kData, "[import] ", other_format(folder, file), '.');
}

Json read_json_if_there(const std::string& path) {
  return fs::exists(path) ? read_json(path) : Json::object();
}

Json config_with_defaults(const std::string& folder) {
  Json config = read_json(folder + "/" + kConfigFile);
  const Architecture* const architecture = architecture_of(config);
  if (architecture == nullptr) return config;
  for (const ClassDefault& row : architecture->ids) {
    if (!config.contains(row.key)) config[row.key] = Json::parse(row.value);
  }
  return config;
}

Folder open_folder(const std::string& path) {
  refuse_other_place(path);
  Json config = config_with_defaults(path);
  const Architecture* const architecture = architecture_of(config);
  if (architecture == nullptr) refuse_unknown_class(path, config);
  // Releases of before wrote their tensors with Python's pickle, which is a program, not data.
  if (const std::string file = weights_in_other_format(path); !file.empty()) {
    refuse_without_tensors(path, *architecture, config, other_format(path, file));
  }
  TensorReader reader = open_model_folder(path);
  std::vector<std::string> stored;
  for (const StoredTensor& tensor : reader.tensors()) stored.push_back(tensor.name);
  TensorNames names(*architecture, stored);
  return {path, architecture, std::move(config), std::move(reader), std::move(names)};
}

}  // namespace tapestry::interop
