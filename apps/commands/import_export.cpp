// tapestry import and tapestry export: models of other systems' folders, and folders for them.
#include "apps/commands/import_export.h"

#include <algorithm>
#include <iostream>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/plain_folder.h"
#include "apps/interop/export_formats.h"
#include "apps/interop/huggingface_import.h"
#include "apps/interop/peft.h"

namespace tapestry {

int run_import(const ImportArguments& arguments) {
  refuse_existing(arguments.output);
  if (!interop::is_huggingface_folder(arguments.folder)) {
    fail(ErrorKind::kData, "[import] ", arguments.folder,
         " must be a folder with a config.json that has a model_type, or an adapter_config.json.");
  }
  interop::ImportedFolder imported = interop::import_folder(arguments.folder, arguments.base);
  for (const std::string& note : imported.model.notes) std::cerr << "note: " << note << '\n';
  CheckpointContent content;
  if (reads_text(imported.model.config)) {
    for (auto& [name, bytes] : imported.tokenizers.files()) content[name] = std::move(bytes);
  }
  content[kConfigFile] = to_json(imported.model.config);
  content[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(imported.model.tensors, {{"format", "tapestry"}}, sink);
  };
  write_checkpoint(arguments.output, content);
  std::cerr << "imported " << imported.model.tensors.size() << " tensors into " << arguments.output
            << '\n';
  return 0;
}

int run_export(const ExportArguments& arguments) {
  refuse_existing(arguments.output);
  const interop::ExportFormat& format =
      *std::ranges::find(interop::export_formats(), arguments.format, &interop::ExportFormat::name);
  if (!arguments.architecture.empty() && !format.has_architectures) {
    fail(ErrorKind::kConfig, "[export] --architecture has no effect with --format ", format.name,
         '.');
  }
  const ModelFiles model = read_model_files(arguments.model);
  const CheckpointContent content = format.files(model, arguments.architecture);
  const std::string note = format.note != nullptr ? format.note(model) : "";
  if (!note.empty()) std::cerr << "note: " << note << '\n';
  write_plain_folder(arguments.output, content);
  std::cerr << "wrote " << content.size() << " files into " << arguments.output << '\n';
  return 0;
}

}  // namespace tapestry
