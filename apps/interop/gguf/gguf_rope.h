// The scaling of rotary frequencies in GGUF files: keys, and tensors of the factors by which the
// frequencies of a head are divided. Of llama3 there are only these factors, from which the numbers
// of the scaling can be found again.
#pragma once

#include <optional>
#include <vector>

#include "apps/checkpoint/safetensors.h"
#include "apps/interop/gguf/gguf_classes.h"
#include "apps/interop/gguf/gguf_file.h"

namespace tapestry::interop {

/// What each frequency of a head is divided by.
std::vector<float> gguf_rope_factors(const ModelOptions& options);

/// The scaling with these factors, of a model with this rope_theta; unset if no scaling of type
/// llama3 has them. Of the many that have, low_freq_factor is 1 if
/// original_max_position_embeddings is a whole number then.
std::optional<RopeScaling> gguf_rope_scaling(const std::vector<float>& factors, double theta);

/// The value of rope.scaling.type; null: files lack the key.
const char* gguf_rope_type(const RopeScaling& scaling);
void add_gguf_rope_tensors(const ModelOptions& options, std::vector<TensorToWrite>& tensors);
/// Adds the numbers of a scaling that their engine does not compute.
void refuse_gguf_rope(const GgufClass& one, const ModelOptions& options, Reasons& reasons);

/// True for a key, behind the name of the class, that read_gguf_rope() reads.
bool is_gguf_rope_key(const std::string& key);
bool is_gguf_rope_tensor(const std::string& name);
/// Adds rope_scaling to a config.json that has max_position_embeddings and rope_theta, as their
/// engine computes it.
void read_gguf_rope(const GgufFile& file, const GgufClass& one, Json& config, Reasons& reasons);

}  // namespace tapestry::interop
