// Folders for other systems: written like a checkpoint, without its manifest.
#pragma once

#include <string>

#include "apps/checkpoint/files.h"

namespace tapestry {

/// Throws Error(kConfig) where something stands that is no empty folder.
void refuse_existing(const std::string& folder);

/// As write_checkpoint(), without a manifest. Throws as refuse_existing(), too.
void write_plain_folder(const std::string& folder, const CheckpointContent& content);

}  // namespace tapestry
