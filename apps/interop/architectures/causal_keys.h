// Keys of config.json that the classes of Llama's kind share and no row can express. Each reader
// adds to our `model` section, and says what it cannot read.
#pragma once

#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {

/// The member, or the fallback for one that is absent or null.
Json value_of(const Json& object, const char* key, const Json& fallback);

/// rope_parameters, or the older rope_theta beside a rope_scaling that may be null.
void read_rope(const Json& theirs, Json& model, Reasons& reasons);
/// The same as new and old releases read it, and head_dim.
void write_rope(const ModelOptions& model, Json& theirs);
/// rope_parameters of one kind of layers.
Json rope_parameters(const ModelOptions& model);

/// The size of a head, `usual` where the file says nothing; null: hidden_size /
/// num_attention_heads.
void read_head_size(const Json& theirs, const Json& usual, Json& model, Reasons& reasons);
void read_attention_bias(const Json& theirs, Json& model);

}  // namespace tapestry::interop
