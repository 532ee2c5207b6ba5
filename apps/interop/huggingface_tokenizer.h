// The tokenizer's files in a folder of Hugging Face's.
#pragma once

#include <map>
#include <string>

#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// What files of theirs call the beginning of a causal model whose training parted documents: what
/// stands in front of each, or could.
inline int32_t document_start(const ModelFiles& model) {
  const tapestry::SpecialIds& special = model.tokenizers.target->special();
  const std::vector<int32_t> document = special.document();
  return document.empty() ? special.bos : document.front();
}

/// The files from which our programs load the tokenizers, without what these came with.
std::map<std::string, std::string> own_files(const TokenizerPair& tokenizers);

/// By name: tokenizer.json and its config, or for two vocabularies Marian's files; and our own
/// files, from which an import takes the tokenizers back.
std::map<std::string, std::string> huggingface_tokenizer_files(const ModelFiles& model);

}  // namespace tapestry::interop
