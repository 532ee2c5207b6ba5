// Models of Hugging Face's folders as ours: config.json with model_type, model.safetensors or its
// shards, and the tokenizer's files. GGUF files become such folders in memory
// (apps/interop/gguf/gguf_import.cpp).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"
#include "apps/checkpoint/safetensors.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {

/// True if the folder holds a model of theirs, or adapters of one (apps/interop/peft/peft.h); false
/// for a checkpoint or run of ours.
bool is_huggingface_folder(const std::string& path);
/// The same, or true of a GGUF file and of a folder with nothing else (gguf_file_of()). The
/// functions below read each of them.
bool is_foreign_model(const std::string& path);

/// The contents of a folder besides its tokenizer.
struct ImportedModel {
  Config config;
  Counts counts;
  std::vector<TensorToWrite> tensors;   ///< ours; each is read and converted when it is asked for
  std::vector<std::string> notes = {};  ///< what is left out or missing, a sentence each
  /// Further tensors in the file: a training of another task may begin with them.
  std::vector<TensorToWrite> spare = {};
};

/// Reads config.json and the headers of the tensors. Throws one Error(kData) with everything that
/// has no place in Tapestry.
ImportedModel import_model(const std::string& folder);

/// The facts about the class that a model of ours came as, by the files that it came with; the
/// usual ones if it came from nowhere.
ClassFacts class_facts_of_origin(const std::map<std::string, std::string>& came_with);

/// The same with its tokenizers, which must give the model's ids. For a folder with adapters: they
/// and their model, from the folder `base`, or from the one that they name.
struct ImportedFolder {
  ImportedModel model;
  TokenizerPair tokenizers;
};
ImportedFolder import_folder(const std::string& folder, const std::string& base = "");

/// The model in the form of a checkpoint, for training and commands; tensors are converted as they
/// are read.
ModelFiles model_files(ImportedFolder imported, const std::string& folder, bool with_spare = false);

/// Throws Error(kData): the folder has its weights only in a file that no other program should run.
[[noreturn]] void refuse_other_format(const std::string& folder, const std::string& file);

}  // namespace tapestry::interop
