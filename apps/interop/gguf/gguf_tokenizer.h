// The tokenizer of a GGUF file as one of ours.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/gguf/gguf_file.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry::interop {

/// The pairs of a tokenizer that are read, and those that change nothing here.
bool is_gguf_tokenizer_key(const std::string& key);

/// The ids of a text's ends: the tokenizer's own is the first.
std::vector<int64_t> gguf_ends(const GgufFile& file, Reasons& reasons);

/// A tokenizer.json for byte-level BPE (tokenizer.ggml.model gpt2), a SentencePiece model for
/// pieces with scores (llama). `rows` of the model's table. Adds what Tapestry cannot express to
/// `reasons`, and then returns null.
std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufFile& file, int64_t rows,
                                                Reasons& reasons, Reasons& notes);

/// True if nothing stands in front of a document: training saw one long text.
bool is_one_document(const GgufFile& file, const Tokenizer& tokenizer);

}  // namespace tapestry::interop
