// What the programs around llama.cpp have fixed for a class, where no key of a file says it: which
// layers have windows or positions, the scale of scores. Facts of its src/llama-model.cpp.
#pragma once

#include "apps/interop/gguf/gguf_classes.h"

namespace tapestry::interop::gguf_engine {

/// GgufClass::refuse_more.
void refuse_gemma(const Config& config, Reasons& reasons);
void refuse_gemma2(const Config& config, Reasons& reasons);
void refuse_gemma3(const Config& config, Reasons& reasons);
void refuse_smollm3(const Config& config, Reasons& reasons);
void refuse_command_r(const Config& config, Reasons& reasons);
void refuse_cohere2(const Config& config, Reasons& reasons);

/// GgufClass::complete.
void complete_gemma2(const GgufFile& file, Json& config);
void complete_gemma3(const GgufFile& file, Json& config);
void complete_neox(const GgufFile& file, Json& config);
void complete_rotary_share(const GgufFile& file, Json& config);  ///< partial_rotary_factor

}  // namespace tapestry::interop::gguf_engine
