// Causal models as GGUF files, for the programs around llama.cpp and from them: the classes of
// gguf_classes.h.
#pragma once

#include <string>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/interop/huggingface_import.h"

namespace tapestry::interop {

/// The types that a file's matrices may have: "float32", ..., "q4_0". Norms, biases and tables of
/// positions are float32 in all of them.
std::vector<std::string> gguf_dtypes();
/// model.gguf. Throws one Error(kConfig) with everything of the model that has no place there.
CheckpointContent gguf_files(const ModelFiles& model, const std::string& dtype = "");
/// What the file cannot say of the model, whose tokenizer may be none that their engine knows, and
/// tensors that cannot have the type.
std::vector<std::string> gguf_notes(const ModelFiles& model, const std::string& dtype = "");

/// The model of a GGUF file without its tokenizer; tensors become float32 as they are read. Throws
/// one Error(kData) with everything that has no place in Tapestry.
ImportedModel import_gguf_model(const std::string& file);
/// The same with its tokenizer, as import_folder() makes them.
ImportedFolder import_gguf(const std::string& file);

}  // namespace tapestry::interop
