#include "nn/models/layer_attention.h"

namespace tapestry {

LayerAttention::LayerAttention(const ModelOptions& o, int64_t branches, const ParamScope& scope)
    : kind((o.validate(),
            o.kv_latent_size > 0
                ? decltype(kind)(LatentAttention(latent_attention_options(o, branches), scope))
                : decltype(kind)(SelfAttention(attention_options(o, branches), scope)))) {}

}  // namespace tapestry
