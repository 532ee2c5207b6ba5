// generation_config.json of Hugging Face's folders: how a model is to be searched.
#pragma once

#include <string>

#include "apps/config/config.h"
#include "apps/interop/architectures.h"

namespace tapestry::interop {

/// What their program reads in a folder: generation_config.json, or without one config.json, where
/// older releases had these keys.
Json read_generation(const std::string& folder, const Json& config);

/// Our `generation` section for it: what it does not say is as their class has it. `notes` gets a
/// sentence for each key that searches here do not know.
Json our_generation(const Json& theirs, ModelType type, Reasons& notes);

/// Theirs, for a model of ours. `came` is what the model came with, null if it is ours: its keys
/// stay, but for those that our config says otherwise since. `config` is their config.json.
Json their_generation(const Config& ours, const Json& came, const Json& config);

}  // namespace tapestry::interop
