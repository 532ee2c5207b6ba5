// A causal model of ours as a GGUF file, for the programs around llama.cpp: Llama's and GPT-2's
// styles.
#pragma once

#include <string>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// model.gguf. Throws one Error(kConfig) with everything of the model that has no place there.
CheckpointContent gguf_files(const ModelFiles& model);
/// Whether that file has a tokenizer: those of SentencePiece's BPE with bytes, and byte-level BPE
/// that cuts texts in a way which their engine knows.
bool gguf_has_tokenizer(const ModelFiles& model);
/// What its tokenizer cannot say of the model; "" if nothing.
std::string gguf_note(const ModelFiles& model);

}  // namespace tapestry::interop
