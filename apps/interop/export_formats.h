// The formats that a model of ours is written in for other systems: a new one is a file with its
// functions and a row in export_formats.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/checkpoint/files.h"
#include "apps/checkpoint/model_bundle.h"

namespace tapestry::interop {

struct ExportChoice {
  std::string architecture = {};  ///< a name, or "" for the first one that fits
  std::string commit = {};        ///< of this program's sources
  std::string dtype = {};         ///< of the tensors, a name of dtypes(), or "" for the usual one
};

struct ExportFormat {
  const char* name;  ///< as on the command line
  /// The files of the folder. Throws one Error(kConfig) with everything of the model that has no
  /// place there, and Error(kData) for a number that is too large for the type.
  CheckpointContent (*files)(const ModelFiles& model, const ExportChoice& choice);
  std::vector<std::string> (*dtypes)();
  bool has_architectures = false;
  bool has_shortlists = false;
  /// Sentences about what the folder cannot say of the model. May be null.
  std::vector<std::string> (*notes)(const ModelFiles& model, const ExportChoice& choice) = nullptr;
};

/// All of them, first the default.
std::span<const ExportFormat> export_formats();

}  // namespace tapestry::interop
