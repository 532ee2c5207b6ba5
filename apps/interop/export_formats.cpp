#include "apps/interop/export_formats.h"

#include "apps/interop/ctranslate2.h"
#include "apps/interop/export_source.h"
#include "apps/interop/gguf/gguf.h"
#include "apps/interop/huggingface_export.h"
#include "apps/interop/model_card.h"
#include "apps/interop/peft/peft.h"
#include "apps/tasks/answers/shortlists.h"

namespace tapestry::interop {
namespace {

constexpr ExportFormat kFormats[] = {
    {.name = "huggingface",
     .files =
         [](const ModelFiles& model, const ExportChoice& choice) {
           CheckpointContent files = huggingface_files(model, choice.architecture, choice.dtype);
           add_model_card(model, choice.commit, files);
           return files;
         },
     .dtypes = float_dtypes,
     .has_architectures = true},
    {.name = "peft",
     .files =
         [](const ModelFiles& model, const ExportChoice& choice) {
           return peft_files(model, choice.architecture, choice.dtype);
         },
     .dtypes = float_dtypes,
     .has_architectures = true},
    {.name = "ctranslate2",
     .files =
         [](const ModelFiles& model, const ExportChoice& choice) {
           CheckpointContent files = ctranslate2_files(model, choice.dtype);
           const SearchOptions& search = model.config.generation;
           if (!search.shortlist.empty()) files["vmap.txt"] = vmap_of(search, model.tokenizers);
           return files;
         },
     .dtypes = float_dtypes,
     .has_shortlists = true,
     .notes = [](const ModelFiles& model,
                 const ExportChoice&) { return ctranslate2_notes(model); }},
    {.name = "gguf",
     .files = [](const ModelFiles& model,
                 const ExportChoice& choice) { return gguf_files(model, choice.dtype); },
     .dtypes = gguf_dtypes,
     .notes = [](const ModelFiles& model,
                 const ExportChoice& choice) { return gguf_notes(model, choice.dtype); }},
};

}  // namespace

std::span<const ExportFormat> export_formats() { return kFormats; }

}  // namespace tapestry::interop
