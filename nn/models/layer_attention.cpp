#include "nn/models/layer_attention.h"

namespace tapestry {
namespace {

using Kind = decltype(LayerAttention::kind);

Kind make(const ModelOptions& o, int64_t branches, const ParamScope& scope) {
  o.validate();
  if (o.is_recurrent()) return Ssru(ssru_options(o), scope);
  if (o.kv_latent_size > 0) return LatentAttention(latent_attention_options(o, branches), scope);
  return SelfAttention(attention_options(o, branches), scope);
}

}  // namespace

LayerAttention::LayerAttention(const ModelOptions& options, int64_t branches,
                               const ParamScope& scope)
    : kind(make(options, branches, scope)) {}

ResidualScalars::ResidualScalars(const ModelOptions& options, const ParamScope& scope) {
  if (!options.residual_scalars) return;
  stream = scope.create("stream", {1}, Init::ones());
  embeddings = scope.create("embeddings", {1}, Init::zeros());
}

}  // namespace tapestry
