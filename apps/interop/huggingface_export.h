// A model of ours as a folder of Hugging Face's.
#pragma once

#include <string>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// The files of the folder. `architecture` is a model_type, or "" for the first one that the model
/// fits. Throws one Error(kConfig) with everything of the model that has no place there.
CheckpointContent huggingface_files(const ModelFiles& model, const std::string& architecture);

}  // namespace tapestry::interop
