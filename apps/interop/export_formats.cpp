#include "apps/interop/export_formats.h"

#include "apps/interop/ctranslate2.h"
#include "apps/interop/gguf.h"
#include "apps/interop/huggingface_export.h"
#include "apps/interop/peft.h"

namespace tapestry::interop {
namespace {

constexpr ExportFormat kFormats[] = {
    {.name = "huggingface", .files = huggingface_files, .has_architectures = true},
    {.name = "peft", .files = peft_files, .has_architectures = true},
    {.name = "ctranslate2",
     .files = [](const ModelFiles& model, const std::string&) { return ctranslate2_files(model); },
     .note = ctranslate2_note},
    {.name = "gguf",
     .files = [](const ModelFiles& model, const std::string&) { return gguf_files(model); },
     .note = gguf_note},
};

}  // namespace

std::span<const ExportFormat> export_formats() { return kFormats; }

}  // namespace tapestry::interop
