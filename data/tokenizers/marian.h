// Marian's tokenizers, which OPUS-MT's folders have: SentencePiece cuts a text into pieces, and a
// vocabulary of its own, {piece: id}, gives them their ids. The two sides have a SentencePiece
// model each, and most often one vocabulary. M2M100's are of the same kind, with a language in
// front of texts.
#pragma once

#include <string>

#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry {

/// The files of one side.
struct MarianFiles {
  std::string pieces;      ///< the bytes of source.spm or target.spm
  std::string vocabulary;  ///< the bytes of vocab.json or target_vocab.json
  HuggingFaceIds ids;      ///< with a language it is M2M100's, whose "__xx__" name languages
};

/// The bytes from which load_tokenizer() builds the tokenizer of a side.
std::string join_marian(const MarianFiles& files);
/// Inverse. Throws Error(kData), beginning with `name`, if the ids cannot be read.
MarianFiles split_marian(const std::string& bytes, const std::string& name);
/// True if load_tokenizer() takes the bytes for a side of Marian's.
bool is_marian(const std::string& bytes);

/// True if the folder has source.spm, target.spm and vocab.json.
bool has_marian_tokenizers(const std::string& folder);
/// Reads both sides of such a folder; `target` are the hints for target_vocab.json, if there is
/// one. Throws Error(kData) if a file cannot be read or gives an id twice or beyond the rows.
TokenizerPair read_marian(const std::string& folder, const HuggingFaceHints& source,
                          const HuggingFaceHints& target);

}  // namespace tapestry
