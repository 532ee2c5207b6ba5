#include "apps/run/pretrained.h"

#include <filesystem>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/run_folder.h"
#include "apps/config/sections.h"
#include "apps/interop/huggingface_import.h"
#include "apps/interop/peft/peft.h"
#include "data/files/files.h"

namespace tapestry {

Config config_of_pretrained(const std::string& path) {
  if (interop::is_foreign_model(path)) {
    return interop::is_peft_folder(path)
               ? interop::import_adapted_model(path, interop::base_of_adapters(path, "")).config
               : interop::import_model(path).config;
  }
  Checkpoint checkpoint(resolve_checkpoint(path));
  Config config = config_of(checkpoint);
  // A classifier that begins with it has the layer of the class that it came as.
  if (config.model_type == ModelType::kEncoder) {
    const TokenizerPair tokenizers = load_tokenizers(tokenizer_files(checkpoint));
    interop::class_facts_of_origin(tokenizers.came_with).add_to(config);
  }
  return config;
}

Config load_run_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                       bool check_files) {
  return load_config(source, overrides, check_files, [](const RunPaths& paths) {
    // A resumed run stays the same, even if its pretrained model is gone.
    const std::string last = paths.output_dir + "/last/" + kConfigFile;
    return std::filesystem::is_regular_file(last) ? load_checkpoint_config(read_file(last), last)
                                                  : config_of_pretrained(paths.init_from);
  });
}

}  // namespace tapestry
