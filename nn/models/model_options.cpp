#include "nn/models/model_options.h"

#include <algorithm>
#include <cmath>

namespace tapestry {
namespace {

// Initial values of the projections back into the residual stream.
MatrixInit residual_init(const ModelOptions& o, int64_t branches) {
  if (o.zero_branches) return MatrixInit::normal(0);
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

ModelOptions ModelOptions::of_layer(int64_t i) const {
  ModelOptions options = *this;
  options.first_norm = first_norm || i > 0;
  const LayerType type = layer_types.empty()
                             ? (attention_window > 0 ? LayerType::kWindow : LayerType::kFull)
                             : layer_types[static_cast<size_t>(i) % layer_types.size()];
  if (type != LayerType::kWindow) options.attention_window = 0;
  if (type == LayerType::kNope) options.position_embedding = PositionEmbedding::kNone;
  if (type == LayerType::kWindow && window_rope_theta > 0) {
    options.rope_theta = window_rope_theta;
    options.rope_scaling = {};
  }
  options.layer_types.clear();
  options.window_rope_theta = 0;
  options.residual_scalars = residual_scalars && i > 0;
  options.value_residual = value_residual && i > 0;
  return options;
}

namespace {

void validate_layers(const ModelOptions& o, const OptionReport& report) {
  const auto has = [&](LayerType type) {
    return std::ranges::find(o.layer_types, type) != o.layer_types.end();
  };
  const bool rope = o.position_embedding == PositionEmbedding::kRope;
  const bool windowed = o.layer_types.empty() ? o.attention_window > 0 : has(LayerType::kWindow);
  report.expect(o.layer_types.empty() || windowed == (o.attention_window > 0), "attention_window",
                windowed ? "must be more than 0 with a 'window' in layer_types, got "
                         : "must be 0 without a 'window' in layer_types, got ",
                o.attention_window, '.');
  report.expect(rope || !has(LayerType::kNope), "layer_types",
                "'nope' needs position_embedding rope: others do not belong to a layer.");
  report.expect(o.kv_latent_size == 0 || !has(LayerType::kNope), "layer_types",
                "'nope' has no place with kv_latent_size, which splits a head by positions.");
  report.expect(o.window_rope_theta == 0 || (rope && windowed), "window_rope_theta",
                "needs position_embedding rope and layers with a window, got ", o.window_rope_theta,
                '.');
  report.expect(o.window_rope_theta >= 0, "window_rope_theta", "must be at least 0, got ",
                o.window_rope_theta, '.');
  report.expect(o.partial_rotary_factor > 0 && o.partial_rotary_factor <= 1,
                "partial_rotary_factor", "must be in (0, 1], got ", o.partial_rotary_factor, '.');
  report.expect(o.partial_rotary_factor == 1 || o.kv_latent_size == 0, "partial_rotary_factor",
                "must be 1 with kv_latent_size, whose rope_head_size says it, got ",
                o.partial_rotary_factor, '.');
}

void validate_norms(const ModelOptions& o, const OptionReport& report) {
  const bool pre = o.norm_position == NormPosition::kPre;
  report.expect(pre || !o.parallel_residual, "parallel_residual", "needs norm_position pre, got ",
                name_of(o.norm_position), '.');
  report.expect(o.parallel_residual || !o.shared_norm, "shared_norm",
                "needs parallel_residual: others do not read the same.");
  report.expect(o.first_norm || !o.shared_norm, "shared_norm", "must be false without first_norm.");
  report.expect(pre || o.first_norm, "first_norm", "must be true without norm_position pre, got ",
                name_of(o.norm_position), '.');
  report.expect(o.norm_position != NormPosition::kPost || !o.residual_scalars, "residual_scalars",
                "must be false with norm_position post, whose layers end in a norm.");
  report.expect(o.norm != NormKind::kBatch || !o.norm_unit_offset, "norm_unit_offset",
                "must be false with norm batchnorm.");
}

// What the decoder would not have, or could not learn with.
void validate_recurrence(const ModelOptions& o, const OptionReport& report) {
  if (!o.is_recurrent()) return;
  const std::string with =
      concat("with decoder_self_attention: ", name_of(o.decoder_self_attention));
  const PositionEmbedding positions = o.position_embedding;
  report.expect(
      positions == PositionEmbedding::kSinusoidal || positions == PositionEmbedding::kFairseq ||
          positions == PositionEmbedding::kLearned || positions == PositionEmbedding::kNone,
      "position_embedding", "must be sinusoidal, sinusoidal_fairseq, learned or none ", with,
      ", which has no scores that could tell positions.");
  report.expect(o.attention_window == 0, "attention_window", "must be 0 ", with, ", got ",
                o.attention_window, '.');
  report.expect(o.layer_types.empty(), "layer_types", "must be empty ", with, '.');
  report.expect(o.kv_latent_size == 0, "kv_latent_size", "must be 0 ", with, ", got ",
                o.kv_latent_size, '.');
  report.expect(!o.prefix_lm, "prefix_lm", "must be false ", with,
                ", which reads from left to right.");
  report.expect(!o.value_residual, "value_residual", "must be false ", with,
                ", which has no values.");
  report.expect(!o.zero_branches, "zero_branches", "must be false ", with,
                ": behind its relu zeros would stay zeros.");
}

void validate_attention(const ModelOptions& o, const OptionReport& report) {
  if (o.kv_latent_size > 0) {
    report.expect(o.num_key_value_heads == 0 || o.num_key_value_heads == o.num_attention_heads,
                  "num_key_value_heads",
                  "must be 0 with kv_latent_size, whose latents all heads share, got ",
                  o.num_key_value_heads, '.');
    report.expect(o.head_size == 0, "head_size", "must be 0 with kv_latent_size, got ", o.head_size,
                  '.');
    report.expect(o.qk_norm == QkNorm::kNone, "qk_norm", "must be none with kv_latent_size.");
    report.expect(!o.value_residual, "value_residual", "must be false with kv_latent_size.");
    report.expect(o.attention_bias == AttentionBias::kAsOthers, "attention_bias",
                  "must be auto with kv_latent_size.");
    report.expect(o.rope_head_size == 0 || o.position_embedding == PositionEmbedding::kRope,
                  "rope_head_size", "needs position_embedding rope, got ", o.rope_head_size, '.');
    LatentAttention::validate(latent_attention_options(o, /*branches=*/1), report);
  } else {
    MultiHeadAttention::validate(attention_options(o, /*branches=*/1), report);
  }
  report.expect(o.attention_scale >= 0, "attention_scale", "must be at least 0, got ",
                o.attention_scale, '.');
  report.expect(o.attention_scale == 0 || o.kv_latent_size == 0, "attention_scale",
                "must be 0 with kv_latent_size, got ", o.attention_scale, '.');
  report.expect(o.attention_softcap >= 0, "attention_softcap", "must be at least 0, got ",
                o.attention_softcap, '.');
  report.expect(o.attention_softcap == 0 || o.kv_latent_size == 0, "attention_softcap",
                "must be 0 with kv_latent_size, got ", o.attention_softcap, '.');
  report.expect(o.logit_softcap >= 0, "logit_softcap", "must be at least 0, got ", o.logit_softcap,
                '.');
  report.expect(o.logit_scale > 0, "logit_scale", "must be more than 0, got ", o.logit_scale, '.');
}

void validate_rope_scaling(const ModelOptions& o, const OptionReport& report) {
  o.rope_scaling.validate(OptionReport([&](const std::string& member, const std::string& problem) {
    report.expect(false, concat("rope_scaling.", member).c_str(), problem);
  }));
  if (o.rope_scaling.type == RopeScalingType::kLongrope &&
      o.position_embedding == PositionEmbedding::kRope) {
    const int64_t rotated = o.kv_latent_size > 0 ? latent_attention_options(o, 1).rope_head_size
                                                 : attention_options(o, 1).rotary_size();
    for (const auto& [name, factors] :
         {std::pair{"rope_scaling.short_factor", &o.rope_scaling.short_factor},
          std::pair{"rope_scaling.long_factor", &o.rope_scaling.long_factor}}) {
      report.expect(2 * std::ssize(*factors) == rotated, name, "must have ", rotated / 2,
                    " numbers, half of what is rotated of a head (head_size, or hidden_size / "
                    "num_attention_heads, times partial_rotary_factor), got ",
                    factors->size(), '.');
    }
  }
}

void validate_positions(const ModelOptions& o, const OptionReport& report) {
  const bool fairseq = o.position_embedding == PositionEmbedding::kFairseq;
  const char* const width = o.embedding_size > 0 ? "embedding_size" : "hidden_size";
  report.expect(!fairseq || (o.embedding_width() % 2 == 0 && o.embedding_width() > 2), width,
                "must be even and more than 2 for sinusoidal positions of fairseq's, got ",
                o.embedding_width(), '.');
  if (o.position_embedding == PositionEmbedding::kRelative) {
    const int64_t buckets = o.relative_attention_num_buckets;
    report.expect(buckets >= 4, "relative_attention_num_buckets", "must be at least 4, got ",
                  buckets, '.');
    report.expect(o.relative_attention_max_distance > buckets / 2,
                  "relative_attention_max_distance",
                  "must be more than half of relative_attention_num_buckets, got ",
                  o.relative_attention_max_distance, " and ", buckets, '.');
  }
  report.expect(
      o.position_embedding != PositionEmbedding::kSinusoidal || o.embedding_width() % 2 == 0, width,
      "must be even for sinusoidal positions, got ", o.embedding_width(), '.');
}

}  // namespace

void ModelOptions::validate(const OptionReport& report) const {
  validate_initializer(*this, report);
  validate_layers(*this, report);
  validate_norms(*this, report);
  validate_recurrence(*this, report);
  validate_attention(*this, report);
  validate_rope_scaling(*this, report);
  validate_positions(*this, report);
  report.expect(embedding_size == 0 || transformed_head, "embedding_size",
                "must be 0 with masked_head linear, which reads as wide as hidden_size, got ",
                embedding_size, '.');
}

MultiHeadAttention::Options attention_options(const ModelOptions& o, int64_t branches) {
  const bool rope = o.position_embedding == PositionEmbedding::kRope;
  return {.hidden_size = o.hidden_size,
          .heads = o.num_attention_heads,
          .kv_heads = o.num_key_value_heads,
          .own_head_size = o.head_size,
          .value_head_size = o.value_head_size,
          .window = o.attention_window,
          .scale = o.attention_scale,
          .softcap = o.attention_softcap,
          .dropout = o.attention_dropout,
          .bias = o.has_query_bias(),
          .out_bias = o.has_attention_out_bias(),
          .qk_norm = o.qk_norm,
          .norm_eps = o.norm_eps,
          .norm_unit_offset = o.norm_unit_offset,
          .mixes_values = o.value_residual,
          .in_init = matrix_init(o),
          .out_init = residual_init(o, branches),
          .rope_positions = rope ? o.max_position_embeddings : 0,
          .rope_theta = o.rope_theta,
          .rope_scaling = o.rope_scaling,
          .rope_layout = o.rope_layout,
          .rotary_share = o.partial_rotary_factor};
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

Ssru::Options ssru_options(const ModelOptions& o) {
  return {.hidden_size = o.hidden_size, .bias = o.bias, .init = matrix_init(o)};
}

int64_t cache_bytes_per_token(const ModelOptions& o, DType dtype) {
  const int64_t width = o.is_recurrent()       ? o.hidden_size
                        : o.kv_latent_size > 0 ? latent_attention_options(o, 1).cache_width()
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
          o.norm_momentum,
          o.norm_unit_offset};
}

Residual::Options residual_options(const ModelOptions& o) {
  return {.hidden_size = o.hidden_size, .position = o.norm_position, .norm = norm_options(o)};
}

Residual::Options first_residual_options(const ModelOptions& o) {
  return o.first_norm ? residual_options(o) : unnormed_residual_options(o);
}

Residual::Options unnormed_residual_options(const ModelOptions& o) {
  Residual::Options options = residual_options(o);
  options.position = NormPosition::kNone;
  return options;
}

}  // namespace tapestry
