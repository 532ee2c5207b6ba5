// The tokenizer's files in a folder of Hugging Face's.
#pragma once

#include <map>
#include <string>

#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// Their name for the beginning of a causal model's documents: the token in front of each, or one
/// that could be there.
inline int32_t document_start(const ModelFiles& model) {
  const tapestry::SpecialIds& special = model.tokenizers.target->special();
  const std::vector<int32_t> document = special.document();
  return document.empty() ? special.bos : document.front();
}

/// Our own files of the tokenizers, without the files that these came with.
std::map<std::string, std::string> own_files(const TokenizerPair& tokenizers);

/// Files by name: tokenizer.json and its config, or for two vocabularies Marian's files; and our
/// own files, from which an import takes the tokenizers back.
std::map<std::string, std::string> huggingface_tokenizer_files(const ModelFiles& model);

}  // namespace tapestry::interop
