// A causal model of ours as a GGUF file, for the programs around llama.cpp: Llama's and GPT-2's
// styles.
#pragma once

#include <string>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// model.gguf. Throws one Error(kConfig) with everything of the model that has no place there.
CheckpointContent gguf_files(const ModelFiles& model);
/// What the file cannot say of the model, whose tokenizer may be none that their engine knows; ""
/// if nothing.
std::string gguf_note(const ModelFiles& model);

}  // namespace tapestry::interop
