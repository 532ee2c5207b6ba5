// A model of ours as a folder that CTranslate2 loads (its binary format 6): encoder-decoders of
// translation, and causal models.
#pragma once

#include <string>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

/// model.bin, config.json and the vocabularies. Throws one Error(kConfig) with everything of the
/// model that has no place there.
/// `dtype` as for store_as().
CheckpointContent ctranslate2_files(const ModelFiles& model, const std::string& dtype = "");
/// What these files cannot say of the model and a program must be told.
std::vector<std::string> ctranslate2_notes(const ModelFiles& model);

}  // namespace tapestry::interop
