// A model of ours as a folder that CTranslate2 loads (its binary format 6): encoder-decoders of
// translation, and causal models.
#pragma once

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// model.bin, config.json and the vocabularies. Throws one Error(kConfig) with everything of the
/// model that has no place there.
CheckpointContent ctranslate2_files(const ModelFiles& model);

}  // namespace tapestry::interop
