// The tokenizer's files in a folder of Hugging Face's.
#pragma once

#include <map>
#include <string>

#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// The token in front of each document of a causal model whose training parted them.
inline int32_t document_start(const ModelFiles& model) {
  return model.tokenizers.target->special().document().front();
}

/// By name: tokenizer.json and its config, or for two vocabularies Marian's files; and our own
/// files, from which an import takes the tokenizers back.
std::map<std::string, std::string> huggingface_tokenizer_files(const ModelFiles& model);

}  // namespace tapestry::interop
