// tapestry import and tapestry export: models of other systems, and folders for them.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "apps/checkpoint/file_names.h"
#include "apps/checkpoint/plain_folder.h"
#include "apps/commands/command.h"
#include "apps/commands/options.h"
#include "apps/interop/architectures/architectures.h"
#include "apps/interop/architectures/tensor_names.h"
#include "apps/interop/export_formats.h"
#include "apps/interop/huggingface_import.h"
#include "apps/interop/peft/peft.h"
#include "core/base/text.h"

namespace tapestry {
namespace {

struct ImportArguments {
  std::string folder = {};
  std::string base = {};  ///< of a folder with adapters: that of their model; "": the one they name
  std::string output = {};
};

struct ExportArguments {
  std::string model = {};
  std::string format = "huggingface";  ///< a name of export_formats()
  std::string architecture = {};       ///< of huggingface and peft; "": the first that fits
  std::string dtype = {};              ///< of the tensors; "": the format's usual one
  SearchArguments shortlist = {};      ///< of ctranslate2, over the config's
  std::string output = {};
};

int run_import(const ImportArguments& arguments) {
  refuse_existing(arguments.output);
  if (!interop::is_foreign_model(arguments.folder)) {
    const std::string config = arguments.folder + "/" + kConfigFile;
    if (std::filesystem::is_regular_file(config)) interop::read_json(config);  // says what it is
    fail(
        ErrorKind::kData, "[import] ", arguments.folder,
        " must be a folder with a config.json that has a model_type, or an adapter_config.json, or "
        "a GGUF file.");
  }
  interop::ImportedFolder imported = interop::import_folder(arguments.folder, arguments.base);
  for (const std::string& note : imported.model.notes) std::cerr << "note: " << note << '\n';
  CheckpointContent content;
  for (auto& [name, bytes] : imported.tokenizers.files()) content[name] = std::move(bytes);
  content[kConfigFile] = to_json(imported.model.config);
  content[kModelFile] = [&](const ByteSink& sink) {
    write_safetensors(imported.model.tensors, {{"format", "tapestry"}}, sink);
  };
  write_checkpoint(arguments.output, content);
  std::cerr << "imported " << imported.model.tensors.size() << " tensors into " << arguments.output
            << '\n';
  return 0;
}

int run_export(const ExportArguments& arguments, const Program& program) {
  refuse_existing(arguments.output);
  const interop::ExportFormat& format =
      *std::ranges::find(interop::export_formats(), arguments.format, &interop::ExportFormat::name);
  if (!arguments.architecture.empty() && !format.has_architectures) {
    fail(ErrorKind::kConfig, "[export] --architecture has no effect with --format ", format.name,
         '.');
  }
  const std::vector<std::string> dtypes = format.dtypes();
  if (!arguments.dtype.empty() && std::ranges::find(dtypes, arguments.dtype) == dtypes.end()) {
    fail(ErrorKind::kConfig, "[export] --dtype must be one of ", join(dtypes, ", "),
         " with --format ", format.name, ", got ", arguments.dtype, '.');
  }
  if (!arguments.shortlist.overrides.empty() && !format.has_shortlists) {
    fail(ErrorKind::kConfig, "[export] --shortlist has no effect with --format ", format.name, '.');
  }
  ModelFiles model = read_model_files(arguments.model);
  if (!arguments.shortlist.overrides.empty() &&
      !traits_of(model.config.model_type).reads_two_texts) {
    fail(ErrorKind::kConfig, "[export] --shortlist needs a model that reads a source, ",
         arguments.model, " holds one of task ", model.config.task->name, '.');
  }
  model.config.generation = override_search(model.config.generation, arguments.shortlist.overrides);
  const interop::ExportChoice choice{
      .architecture = arguments.architecture, .commit = program.commit, .dtype = arguments.dtype};
  const CheckpointContent content = format.files(model, choice);
  if (format.notes != nullptr) {
    for (const std::string& note : format.notes(model, choice)) {
      std::cerr << "note: " << note << '\n';
    }
  }
  if (model.config.training.lora_base) {
    std::cerr << "note: the adapters learned beside a base in "
              << name_of(*model.config.training.lora_base)
              << " (training.lora.base): they fit its rounded numbers, which a merged model has\n";
  }
  write_plain_folder(arguments.output, content);
  std::cerr << "wrote " << content.size() << " files into " << arguments.output << '\n';
  return 0;
}

void add_import(CLI::App& app, ImportArguments& arguments) {
  app.add_option("folder", arguments.folder,
                 "with config.json and model.safetensors, or PEFT's with adapters; or a GGUF file")
      ->required();
  app.add_option("--base", arguments.base,
                 "Hugging Face folder of the adapters' model (default: the one they name)");
  app.add_option("--output", arguments.output, "checkpoint to write")->required();
}

void add_export(CLI::App& app, ExportArguments& arguments) {
  app.add_option("--model", arguments.model, "checkpoint or run folder")->required();
  app.add_option("--format", arguments.format, join(names_of(interop::export_formats()), " | "))
      ->check(CLI::IsMember(names_of(interop::export_formats())))
      ->capture_default_str();
  app.add_option(
      "--architecture", arguments.architecture,
      concat("of a Hugging Face folder: ", join(names_of(interop::architectures()), ", "),
             " (default: the first that the model fits)"));
  const std::span<const interop::ExportFormat> formats = interop::export_formats();
  const std::vector<std::string> usual = formats.front().dtypes();
  std::string dtypes = join(usual, " | ");
  for (const interop::ExportFormat& format : formats) {
    std::vector<std::string> more = format.dtypes();
    std::erase_if(more, [&](const std::string& name) {
      return std::ranges::find(usual, name) != usual.end();
    });
    if (!more.empty()) dtypes += concat("; of ", format.name, " also ", join(more, " | "));
  }
  app.add_option("--dtype", arguments.dtype,
                 concat("of the tensors: ", dtypes, " (default: the model's, or float32)"));
  auto* shortlist = add_search_key(app, arguments.shortlist, "shortlist",
                                   "of ctranslate2: file of tapestry shortlist or Marian's, which "
                                   "becomes vmap.txt (default: the "
                                   "config's generation.shortlist)");
  add_search_key(app, arguments.shortlist, "shortlist_size",
                 "its tokens of each source token, and of the most frequent ones")
      ->needs(shortlist);
  app.add_option("--output", arguments.output, "folder to write")->required();
}

}  // namespace

extern const Command kImport("import", "Make a checkpoint of a Hugging Face folder or a GGUF file",
                             add_import, run_import);
extern const Command kExport("export", "Write a model as other systems read it", add_export,
                             run_export);

}  // namespace tapestry
