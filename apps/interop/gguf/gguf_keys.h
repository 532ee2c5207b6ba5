// The tables of keys of GgufClass::keys, in the order of the files.
#pragma once

#include "apps/interop/gguf/gguf_classes.h"

namespace tapestry::interop::gguf_keys {

extern const std::span<const GgufKey> kGpt2, kLlama, kGemma2, kGemma3, kNeox, kPhi2, kPhi3,
    kCommandR, kCohere2;

/// Those behind rope.scaling.type, of every class that rotates.
extern const std::span<const GgufKey> kRopeScaling;

}  // namespace tapestry::interop::gguf_keys
