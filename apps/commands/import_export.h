// The subcommands that take models from other systems and give them to these; as in
// apps/commands/commands.h.
#pragma once

#include <string>

namespace tapestry {

/// Makes a checkpoint of a Hugging Face folder.
struct ImportArguments {
  std::string folder;
  std::string base;  ///< of a folder with adapters: that of their model, or "": the one they name
  std::string output;
};

/// Writes a folder for other systems.
struct ExportArguments {
  std::string model;
  std::string format = "huggingface";  ///< a name of export_formats()
  std::string architecture;            ///< of huggingface and peft, or "": the first that fits
  std::string output;
};

int run_import(const ImportArguments& arguments);
int run_export(const ExportArguments& arguments);

}  // namespace tapestry
