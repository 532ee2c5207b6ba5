// The vocabulary of a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// Among the files that a model came with: {key: text, list of texts, or number} of the pairs of
/// its GGUF file that describe the model and change nothing.
constexpr const char* kGgufGeneralFile = "gguf_general.json";
constexpr const char* kGgufClassKey = "general.architecture";

/// The kinds of tokens.
struct GgufPiece {
  enum Type : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
};

/// A pre_tokenizer of tokenizer.json, and their engine's name for it (tokenizer.ggml.pre).
struct GgufPreTokenizer {
  const char* name;
  /// Expressions that cut a text one after the other; none: GPT-2's own, which ByteLevel has.
  std::vector<std::string> splits;
  bool digits = false;       ///< each digit by itself, before them
  bool whole_words = false;  ///< a piece that is in the vocabulary is not merged (ignore_merges)
  /// Texts are composed first (NFC), as the tokenizer of that name does. Their engine does not.
  bool normal_form = false;
  bool begins = false;  ///< add_bos_token, where a file does not say
};
std::span<const GgufPreTokenizer> gguf_pre_tokenizers();

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

}  // namespace tapestry::interop
