#include "nn/models/model_options.h"

#include <algorithm>
#include <cmath>

namespace tapestry {
namespace {

// Initial values of the projections back into the residual stream.
MatrixInit residual_init(const ModelOptions& o, int64_t branches) {
  MatrixInit init = matrix_init(o);
  if (o.norm_position == NormPosition::kPre)
    init.deviation /= std::sqrt(static_cast<double>(branches));
  return init;
}

}  // namespace

Initializer ModelOptions::chosen_initializer() const {
  return initializer.value_or(initializer_range > 0 ? Initializer::kNormal
                                                    : Initializer::kXavierPacked);
}

MatrixInit matrix_init(const ModelOptions& o) {
  return {o.chosen_initializer(), o.initializer_range};
}

void validate_initializer(const ModelOptions& o, const OptionReport& report) {
  const bool normal = o.chosen_initializer() == Initializer::kNormal;
  report.expect(normal == (o.initializer_range > 0), "initializer_range", "must be ",
                normal ? "more than 0" : "0",
                " with initializer: ", name_of(o.chosen_initializer()), ", got ",
                o.initializer_range, '.');
}

void ModelOptions::validate(const OptionReport& report) const {
  validate_initializer(*this, report);
  if (kv_latent_size > 0) {
    report.expect(num_key_value_heads == 0 || num_key_value_heads == num_attention_heads,
                  "num_key_value_heads",
                  "must be 0 with kv_latent_size, whose latents all heads share, got ",
                  num_key_value_heads, '.');
    report.expect(head_size == 0, "head_size", "must be 0 with kv_latent_size, got ", head_size,
                  '.');
    report.expect(qk_norm == QkNorm::kNone, "qk_norm", "must be none with kv_latent_size.");
    report.expect(attention_bias == AttentionBias::kAsOthers, "attention_bias",
                  "must be auto with kv_latent_size.");
    report.expect(rope_head_size == 0 || position_embedding == PositionEmbedding::kRope,
                  "rope_head_size", "needs position_embedding rope, got ", rope_head_size, '.');
    LatentAttention::validate(latent_attention_options(*this, /*branches=*/1), report);
  } else {
    MultiHeadAttention::validate(attention_options(*this, /*branches=*/1), report);
  }
  rope_scaling.validate(OptionReport([&](const std::string& member, const std::string& problem) {
    report.expect(false, concat("rope_scaling.", member).c_str(), problem);
  }));
  report.expect(position_embedding != PositionEmbedding::kSinusoidal || hidden_size % 2 == 0,
                "hidden_size", "must be even for sinusoidal positions, got ", hidden_size, '.');
}

MultiHeadAttention::Options attention_options(const ModelOptions& o, int64_t branches) {
  const bool rope = o.position_embedding == PositionEmbedding::kRope;
  return {.hidden_size = o.hidden_size,
          .heads = o.num_attention_heads,
          .kv_heads = o.num_key_value_heads,
          .own_head_size = o.head_size,
          .value_head_size = o.value_head_size,
          .window = o.attention_window,
          .dropout = o.attention_dropout,
          .bias = o.has_query_bias(),
          .out_bias = o.has_attention_out_bias(),
          .qk_norm = o.qk_norm,
          .norm_eps = o.norm_eps,
          .in_init = matrix_init(o),
          .out_init = residual_init(o, branches),
          .rope_positions = rope ? o.max_position_embeddings : 0,
          .rope_theta = o.rope_theta,
          .rope_scaling = o.rope_scaling,
          .rope_layout = o.rope_layout};
}

LatentAttention::Options latent_attention_options(const ModelOptions& o, int64_t branches) {
  const bool rope = o.position_embedding == PositionEmbedding::kRope;
  // DeepSeek-V2's share: 64 numbers beside heads of 128.
  const int64_t half = o.hidden_size / std::max<int64_t>(1, o.num_attention_heads) / 4 * 2;
  return {.hidden_size = o.hidden_size,
          .heads = o.num_attention_heads,
          .value_head_size = o.value_head_size,
          .window = o.attention_window,
          .kv_latent_size = o.kv_latent_size,
          .q_latent_size = o.q_latent_size,
          .rope_head_size = !rope                  ? 0
                            : o.rope_head_size > 0 ? o.rope_head_size
                                                   : std::max<int64_t>(2, half),
          .norm_eps = o.norm_eps,
          .dropout = o.attention_dropout,
          .bias = o.bias,
          .in_init = matrix_init(o),
          .out_init = residual_init(o, branches),
          .rope_positions = o.max_position_embeddings,
          .rope_theta = o.rope_theta,
          .rope_scaling = o.rope_scaling,
          .rope_layout = o.rope_layout};
}

int64_t cache_bytes_per_token(const ModelOptions& o, DType dtype) {
  const int64_t width = o.kv_latent_size > 0 ? latent_attention_options(o, 1).cache_width()
                                             : attention_options(o, 1).kv_width();
  return width * size_of(dtype);
}

FeedForward::Options feed_forward_options(const ModelOptions& o, int64_t branches) {
  return {.hidden_size = o.hidden_size,
          .intermediate_size = o.intermediate_size,
          .act = o.hidden_act,
          .dropout = o.activation_dropout,
          .bias = o.bias,
          .up_init = matrix_init(o),
          .down_init = residual_init(o, branches)};
}

Norm::Options norm_options(const ModelOptions& o) {
  return {{.kind = o.norm, .eps = o.norm_eps, .dropout = o.dropout},
          o.bias,
          o.norm_running_variance == RunningVariance::kBiased,
          o.norm_momentum};
}

Residual::Options residual_options(const ModelOptions& o) {
  return {.hidden_size = o.hidden_size, .position = o.norm_position, .norm = norm_options(o)};
}

}  // namespace tapestry
