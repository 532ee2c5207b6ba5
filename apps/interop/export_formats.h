// The formats that a model of ours is written in for other systems: a new one is a file with its
// functions and a row in export_formats.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

struct ExportFormat {
  const char* name;  ///< as on the command line
  /// The files of the folder. Throws one Error(kConfig) with everything of the model that has no
  /// place there. `architecture`: a name, or "" for the first one that fits; "" where the format
  /// knows none.
  CheckpointContent (*files)(const ModelFiles& model, const std::string& architecture);
  bool has_architectures = false;
  /// A sentence about what the folder cannot say of the model; "" if there is nothing. May be null.
  std::string (*note)(const ModelFiles& model) = nullptr;
};

/// All of them, first the default.
std::span<const ExportFormat> export_formats();

}  // namespace tapestry::interop
