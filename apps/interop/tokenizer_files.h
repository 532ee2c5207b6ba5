// The tokenizers of other systems' folders.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/interop/architectures/model_facts.h"
#include "data/tokenizers/tokenizer.h"

namespace tapestry::interop {

/// The tokenizers of a Hugging Face folder, with as many pieces as the model has rows: missing ones
/// are filled up with pieces that no text has. Only this function knows which files a folder may
/// have. Throws Error(kData), naming the existing files, if it can read none of them. `config` is
/// the folder's config.json, which may name special ids. `notes` gets a sentence about tokens that
/// the model has no rows for.
TokenizerPair find_tokenizers(const std::string& folder, const Counts& counts,
                              const nlohmann::ordered_json& config,
                              std::vector<std::string>& notes);

}  // namespace tapestry::interop
