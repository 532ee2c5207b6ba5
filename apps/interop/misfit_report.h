// A folder of theirs that does not fit: all reasons at once, and the nearest class that there is.
#pragma once

#include <string>
#include <vector>

#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// "the nearest class is MistralForCausalLM (mistral), whose names 37 of its 45 tensors have": by
/// the names of the tensors, or without any by model_type. "" if nothing is near.
std::string nearest_class(const Json& config, const std::vector<std::string>& stored);

/// Throws Error(kData) about a folder whose model_type is unknown, with what the nearest class
/// would refuse, too.
[[noreturn]] void refuse_unknown_class(const std::string& folder, const Json& config);

/// Throws Error(kData): the tensors of a folder cannot be read, which `problem` says. Names what
/// does not fit in its config.json, too.
[[noreturn]] void refuse_without_tensors(const std::string& folder,
                                         const Architecture& architecture, const Json& config,
                                         const std::string& problem);

/// Throws Error(kData): `error`, which an import threw, and what is wrong with the folder's
/// tokenizer, if something is.
[[noreturn]] void refuse_with_tokenizer(const Error& error, const std::string& folder);

/// True for a folder with weights in the format that is read.
bool has_safetensors(const std::string& folder);
/// The file of weights that no other program should run, in a folder without safetensors; or "".
std::string weights_in_other_format(const std::string& folder);

}  // namespace tapestry::interop
