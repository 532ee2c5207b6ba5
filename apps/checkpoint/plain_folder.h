// Folders for other systems: written like a checkpoint, without its manifest.
#pragma once

#include <string>

#include "apps/checkpoint/files.h"

namespace tapestry {

/// Throws Error(kConfig) unless the path is free or an empty folder.
void refuse_existing(const std::string& folder);

/// write_checkpoint() without a manifest. Throws as refuse_existing(), too.
void write_plain_folder(const std::string& folder, const CheckpointContent& content);

}  // namespace tapestry
