// generation_config.json of Hugging Face's folders: how a model is to be searched.
#pragma once

#include <string>

#include "apps/config/config.h"
#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// Their generation options in a folder: generation_config.json, or without one config.json, which
/// had these keys in older releases.
Json read_generation(const std::string& folder, const Json& config);

/// Our `generation` section for them, with their class's defaults. `notes` gets a sentence for each
/// key that searches here do not know.
Json our_generation(const Json& theirs, ModelType type, Reasons& notes);

/// Their options for a model of ours. `came` holds the options that the model came with, null if it
/// is ours: they stay, except for those that our config has changed since. `config` is their
/// config.json.
Json their_generation(const Config& ours, const Json& came, const Json& config);

}  // namespace tapestry::interop
