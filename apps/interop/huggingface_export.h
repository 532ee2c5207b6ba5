// A model of ours as a folder of Hugging Face's.
#pragma once

#include <string>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"
#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// The architecture of that name, a model_type, or with "" the first one that the model fits.
/// Throws one Error(kConfig) with everything of the model that has no place there.
const Architecture& fitting_architecture(const ModelFiles& model, const std::string& name);

/// The files of the folder, adapters merged. `architecture` as above, `dtype` as for store_as().
CheckpointContent huggingface_files(const ModelFiles& model, const std::string& architecture,
                                    const std::string& dtype = "");

}  // namespace tapestry::interop
