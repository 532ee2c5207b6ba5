// The vocabulary of a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

struct GgufVocabulary {
  std::string engine;  ///< tokenizer.ggml.model
  std::string pre;     ///< tokenizer.ggml.pre: how it cuts a text before it merges
  std::vector<std::string> texts = {};
  std::vector<float> scores = {};
  std::vector<int32_t> types = {};
  std::vector<std::string> merges = {};
  std::optional<bool> space_prefix = {};
};

/// The model's vocabulary as programs around llama.cpp read it; unset if they do not know its kind.
std::optional<GgufVocabulary> gguf_vocabulary(const ModelFiles& model);
/// The chat template that the model came with; "" without one.
std::string chat_template_of(const TokenizerPair& tokenizers);

}  // namespace tapestry::interop
