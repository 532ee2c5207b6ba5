#include "apps/interop/foreign_folder.h"

#include <filesystem>

#include "apps/checkpoint/file_names.h"
#include "apps/interop/huggingface_import.h"
#include "core/base/text.h"

namespace tapestry::interop {
namespace {

namespace fs = std::filesystem;

// Releases of before wrote their tensors with Python's pickle, which is a program, not data.
TensorReader open_tensors(const std::string& folder) {
  const bool ours = fs::exists(folder + "/model.safetensors") ||
                    fs::exists(folder + "/model.safetensors.index.json");
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                           "flax_model.msgpack", "consolidated.00.pth"}) {
    if (!ours && fs::exists(folder + "/" + name)) refuse_other_format(folder, name);
  }
  return open_model_folder(folder);
}

const Architecture* architecture_of(const Json& config) {
  const Json type = config.value("model_type", Json());
  return type.is_string() ? find_architecture(type.get<std::string>()) : nullptr;
}

}  // namespace

void refuse_other_format(const std::string& folder, const std::string& file) {
  fail(ErrorKind::kData, "[import] ", folder, " has its weights in ", file,
       ", expected safetensors. With their program: load the model there, and save it again "
       "(save_pretrained).");
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
  const std::string config_path = path + "/" + kConfigFile;
  Json config = config_with_defaults(path);
  const Json type = config.value("model_type", Json());
  const Architecture* const architecture = architecture_of(config);
  if (architecture == nullptr) {
    std::vector<std::string> known;
    for (const Architecture* row : architectures()) known.emplace_back(row->name);
    fail(ErrorKind::kData, "[import] ", config_path, " has model_type ", type.dump(),
         ", expected one of ", join(known, ", "), '.');
  }
  TensorReader reader = open_tensors(path);
  std::vector<std::string> stored;
  for (const StoredTensor& tensor : reader.tensors()) stored.push_back(tensor.name);
  TensorNames names(*architecture, stored);
  return {path, architecture, std::move(config), std::move(reader), std::move(names)};
}

}  // namespace tapestry::interop
