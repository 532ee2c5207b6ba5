// The tokenizer of a Hugging Face folder, and its form in a checkpoint: tokenizer.json as it came,
// and the ids of special tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tapestry {

/// Facts that tokenizer.json lacks. Ids of tokens; `rows`: of the model, at least as many as there
/// are tokens; 0: as many.
struct HuggingFaceIds {
  std::optional<int64_t> pad, unk, mask;
  std::optional<int64_t> start;     ///< the decoder's first token; unset: bos
  std::optional<int64_t> first;     ///< first token that it writes; unset: the begin token of texts
  std::optional<int64_t> language;  ///< of sources, in the place of the template's
  int64_t bos = 0;                  ///< of a masked model: cls
  int64_t eos = 0;                  ///< of a masked model: sep
  int64_t rows = 0;
  std::vector<int64_t> ends = {};  ///< further tokens that end an output
  bool frames_once = false;        ///< SpecialIds::frames_once

  /// The contents of tokenizer_ids.json.
  std::string json() const;
  /// Inverse. Throws Error(kData) naming the file if a number is missing.
  static HuggingFaceIds parse(const std::string& json, const std::string& name);
};

struct HuggingFaceFiles {
  std::string tokenizer;  ///< the bytes of tokenizer.json
  HuggingFaceIds ids;
};

/// The bytes from which load_tokenizer() builds the tokenizer of these files; `ids` are the bytes
/// of tokenizer_ids.json.
std::string join_huggingface(const std::string& tokenizer, const std::string& ids);
/// Inverse. Throws Error(kData), beginning with `name`, if the ids cannot be read.
HuggingFaceFiles split_huggingface(const std::string& bytes, const std::string& name);
/// True if load_tokenizer() takes the bytes for a joined tokenizer.json.
bool is_huggingface(const std::string& bytes);

/// Facts about the tokenizer in a model's config.json.
struct HuggingFaceHints {
  std::optional<int64_t> pad = {}, bos = {}, eos = {}, start = {}, first = {};
  std::vector<int64_t> ends = {};  ///< all that it names
  int64_t rows = 0;
  std::string model_type = {};
};

/// The tokenizer of a folder, or of a tokenizer.json with its neighbours, joined: tokenizer.json,
/// or one that is made of vocab.json with merges.txt (GPT-2, RoBERTa) or of vocab.txt (BERT). The
/// special tokens are those of tokenizer_config.json, else of special_tokens_map.json, else the
/// hints, else the usual names. It is changed where the files beside it say more (NamedTokens), and
/// where the model has no row for a token: `without_row` gets those. Throws Error(kData) if a file
/// cannot be read or no token can stand before and after texts.
std::string read_huggingface(const std::string& path, const HuggingFaceHints& hints = {},
                             std::vector<std::string>* without_row = nullptr);
/// The special tokens, found in the same way, of a vocabulary {token: id} in a file at `path`.
HuggingFaceIds huggingface_ids(const std::string& folder, const std::string& path,
                               const std::string& vocabulary, const HuggingFaceHints& hints);
/// True if read_huggingface() knows a file of the folder.
bool has_huggingface_tokenizer(const std::string& folder);

}  // namespace tapestry
