// Models of Hugging Face's folders as ours: config.json with model_type, model.safetensors or its
// shards, and the tokenizer's files.
#pragma once

#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/interop/model_facts.h"

namespace tapestry::interop {

/// Whether the folder holds a model of theirs, or adapters of one (apps/interop/peft.h); not a
/// checkpoint or run of ours.
bool is_huggingface_folder(const std::string& path);

/// What a folder holds besides its tokenizer.
struct ImportedModel {
  Config config;
  Counts counts;
  std::vector<TensorToWrite> tensors;   ///< ours; each is read and converted when it is asked for
  std::vector<std::string> notes = {};  ///< what is left out or missing, a sentence each
  /// What the file has beside the model: a training of another task may begin with it.
  std::vector<TensorToWrite> spare = {};
};

/// Reads config.json and the headers of the tensors. Throws one Error(kData) with everything that
/// has no place in Tapestry.
ImportedModel import_model(const std::string& folder);

/// The same with its tokenizers, which must give the model's ids. Of a folder with adapters: they
/// and their model, which is in the folder `base`, or in the one that they name.
struct ImportedFolder {
  ImportedModel model;
  TokenizerPair tokenizers;
};
ImportedFolder import_folder(const std::string& folder, const std::string& base = "");

/// As training and commands take a checkpoint; tensors are converted as they are read.
ModelFiles model_files(ImportedFolder imported, const std::string& folder, bool with_spare = false);

/// Throws Error(kData): the folder has its weights only in a file that no other program should run.
[[noreturn]] void refuse_other_format(const std::string& folder, const std::string& file);

}  // namespace tapestry::interop
