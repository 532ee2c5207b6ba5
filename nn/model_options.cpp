#include "nn/model_options.h"

#include <cmath>

namespace tapestry {
namespace {

double residual_deviation(const ModelOptions& o, int64_t branches) {
  if (o.norm_position == NormPosition::kPost) return o.initializer_range;
  return o.initializer_range / std::sqrt(static_cast<double>(branches));
}

}  // namespace

MultiHeadAttention::Options attention_options(const ModelOptions& o, int64_t branches) {
  const bool rope = o.position_embedding == PositionEmbedding::kRope;
  return {.hidden_size = o.hidden_size,
          .heads = o.num_attention_heads,
          .kv_heads = o.num_key_value_heads,
          .dropout = o.attention_dropout,
          .bias = o.bias,
          .in_deviation = o.initializer_range,
          .out_deviation = residual_deviation(o, branches),
          .rope_positions = rope ? o.max_position_embeddings : 0,
          .rope_theta = o.rope_theta,
          .rope_layout = o.rope_layout};
}

FeedForward::Options feed_forward_options(const ModelOptions& o, int64_t branches) {
  return {.hidden_size = o.hidden_size,
          .intermediate_size = o.intermediate_size,
          .act = o.hidden_act,
          .dropout = o.activation_dropout,
          .bias = o.bias,
          .up_deviation = o.initializer_range,
          .down_deviation = residual_deviation(o, branches)};
}

Norm::Options norm_options(const ModelOptions& o) {
  return {{.kind = o.norm, .eps = o.norm_eps, .dropout = o.dropout}, o.bias};
}

Residual::Options residual_options(const ModelOptions& o) {
  return {.hidden_size = o.hidden_size, .position = o.norm_position, .norm = norm_options(o)};
}

Var embedding_table(const ModelOptions& o, int64_t rows, const ParamScope& scope) {
  const double deviation = o.initializer_range > 0
                               ? o.initializer_range
                               : 1 / std::sqrt(static_cast<double>(o.hidden_size));
  return scope.create("weight", {rows, o.hidden_size}, Init::normal(deviation));
}

}  // namespace tapestry
