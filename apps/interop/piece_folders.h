// Tokenizers that a class of transformers makes of files beside which there is no tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizers/huggingface_files.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry::interop {

/// The tokenizer that the class of `config` (config.json) makes of the folder: T5's pieces with
/// sentinels, ByT5's bytes, which need no file, XLM-R's and CamemBERT's pieces with fairseq's ids,
/// and M2M100's with a vocabulary. Null if the class is none of them or its file is missing. Throws
/// Error(kData) naming the file that is not what the class needs.
std::shared_ptr<const Tokenizer> read_pieces(const std::string& folder,
                                             const nlohmann::ordered_json& config,
                                             const HuggingFaceHints& hints);

}  // namespace tapestry::interop
