// tapestry import and tapestry export: models of other systems' folders, and folders for them.
#include "apps/commands/import_export.h"

#include <iostream>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/plain_folder.h"
#include "apps/interop/ctranslate2.h"
#include "apps/interop/gguf.h"
#include "apps/interop/huggingface_export.h"
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
  const ModelFiles model = read_model_files(arguments.model);
  CheckpointContent content;
  std::string note;
  if (arguments.format == "huggingface") {
    content = interop::huggingface_files(model, arguments.architecture);
  } else if (arguments.format == "peft") {
    content = interop::peft_files(model, arguments.architecture);
  } else if (arguments.format == "ctranslate2") {
    content = interop::ctranslate2_files(model);
    note = interop::ctranslate2_note(model);
  } else {
    content = interop::gguf_files(model);
    note = interop::gguf_note(model);
    if (!interop::gguf_has_tokenizer(model)) {
      std::cerr << "warning: the file has no tokenizer (tokenizer.ggml.model is none): programs "
                   "around llama.cpp do not know this one, and read and write ids only\n";
    }
  }
  if (!note.empty()) std::cerr << "note: " << note << '\n';
  write_plain_folder(arguments.output, content);
  std::cerr << "wrote " << content.size() << " files into " << arguments.output << '\n';
  return 0;
}

}  // namespace tapestry
