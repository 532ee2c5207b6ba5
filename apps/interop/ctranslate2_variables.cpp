// What model.bin holds of a model: names and numbers as CTranslate2's specifications have them.
#include "apps/interop/ctranslate2_variables.h"

#include <bit>
#include <cmath>

#include "apps/interop/architectures/architectures.h"
#include "apps/interop/export_source.h"
#include "data/files/little_endian.h"
#include "nn/layers/layers.h"

namespace tapestry::interop {
namespace {

constexpr int64_t kLeastPositions = 1024;  // the rows of a table bound the length of a text

constexpr TensorRow kBothSides[] = {
    {"decoder/embeddings/weight", "embedding.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::shared},
    {"encoder/embeddings_0/weight", "encoder.embedding.weight", "V", "D", Stream::kNone,
     Change::kNone, &ModelFacts::separate},
    {"decoder/embeddings/weight", "decoder.embedding.weight", "W", "D", Stream::kNone,
     Change::kNone, &ModelFacts::separate},
    {"$/position_encodings/encodings", "$.positions.weight", "P", "D", Stream::kNone, Change::kNone,
     &ModelFacts::learned},
    {"$/layernorm_embedding/@", "$.embedding_norm.*", "D", "", Stream::kNone, Change::kNone,
     &ModelFacts::embedding_norm},
    {"$/layer_#/self_attention/linear_0/*", "$.layers.#.self_attention.qkv.*", "QKK", "D"},
    {"$/layer_#/self_attention/linear_1/*", "$.layers.#.self_attention.out.*", "D", "Q"},
    {"$/layer_0/self_attention/relative_attention_bias", "$.relative_positions.weight", "B", "N",
     Stream::kNone, Change::kNone, &ModelFacts::relative},
    {"$/layer_#/self_attention/layer_norm/@", "$.layers.#.self_attention_norm.*", "D"},
    {"decoder/layer_#/attention/linear_0/*", "decoder.layers.#.cross_attention.q.*", "Q", "D"},
    {"decoder/layer_#/attention/linear_1/*", "decoder.layers.#.cross_attention.kv.*", "KK", "D"},
    {"decoder/layer_#/attention/linear_2/*", "decoder.layers.#.cross_attention.out.*", "D", "Q"},
    {"decoder/layer_#/attention/layer_norm/@", "decoder.layers.#.cross_attention_norm.*", "D"},
    {"$/layer_#/ffn/linear_0/*", "$.layers.#.feed_forward.up.*", "F", "D", Stream::kNone,
     Change::kNone, &ModelFacts::plain},
    {"$/layer_#/ffn/{linear_0,linear_0_noact}/*", "$.layers.#.feed_forward.up.*", "FF", "D",
     Stream::kNone, Change::kNone, &ModelFacts::gated},
    {"$/layer_#/ffn/linear_1/*", "$.layers.#.feed_forward.down.*", "D", "F"},
    {"$/layer_#/ffn/layer_norm/@", "$.layers.#.feed_forward_norm.*", "D"},
    {"$/layer_norm/@", "$.norm.*", "D", "", Stream::kNone, Change::kNone, &ModelFacts::final_norm},
    {"decoder/projection/weight", "output.weight", "W", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
    {"decoder/projection/bias", "output.bias", "W", "", Stream::kNone, Change::kNone,
     &ModelFacts::output_bias},
};

constexpr TensorRow kCausal[] = {
    {"decoder/embeddings/weight", "embedding.weight", "V", "D"},
    {"decoder/position_encodings/encodings", "positions.weight", "P", "D", Stream::kNone,
     Change::kNone, &ModelFacts::learned},
    {"decoder/layernorm_embedding/@", "embedding_norm.*", "D", "", Stream::kNone, Change::kNone,
     &ModelFacts::embedding_norm},
    {"decoder/layer_#/self_attention/linear_0/*", "layers.#.self_attention.qkv.*", "QKK", "D"},
    {"decoder/layer_#/self_attention/q_norm/gamma", "layers.#.self_attention.q_norm.weight", "H",
     "", Stream::kNone, Change::kNone, &ModelFacts::normed_heads},
    {"decoder/layer_#/self_attention/k_norm/gamma", "layers.#.self_attention.k_norm.weight", "H",
     "", Stream::kNone, Change::kNone, &ModelFacts::normed_heads},
    {"decoder/layer_#/self_attention/linear_1/*", "layers.#.self_attention.out.*", "D", "Q"},
    {"decoder/layer_#/self_attention/layer_norm/@", "layers.#.self_attention_norm.*", "D"},
    {"decoder/layer_#/ffn/linear_0/*", "layers.#.feed_forward.up.*", "F", "D", Stream::kNone,
     Change::kNone, &ModelFacts::plain},
    {"decoder/layer_#/ffn/{linear_0,linear_0_noact}/*", "layers.#.feed_forward.up.*", "FF", "D",
     Stream::kNone, Change::kNone, &ModelFacts::gated},
    {"decoder/layer_#/ffn/linear_1/*", "layers.#.feed_forward.down.*", "D", "F"},
    {"decoder/layer_#/ffn/layer_norm/@", "layers.#.feed_forward_norm.*", "D"},
    {"decoder/layer_norm/@", "norm.*", "D", "", Stream::kNone, Change::kNone,
     &ModelFacts::final_norm},
    {"decoder/projection/weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
    {"decoder/projection/bias", "output.bias", "V", "", Stream::kNone, Change::kNone,
     &ModelFacts::output_bias},
};

CTranslate2Variable int8(int64_t value) { return {1, std::string(1, static_cast<char>(value))}; }
CTranslate2Variable int16(int64_t value) {
  CTranslate2Variable variable{2};
  append_little_endian(variable.bytes, static_cast<uint16_t>(value));
  return variable;
}
CTranslate2Variable int32(int64_t value) {
  CTranslate2Variable variable{3};
  append_little_endian(variable.bytes, static_cast<uint32_t>(value));
  return variable;
}
CTranslate2Variable real(double value) {
  CTranslate2Variable variable{0};
  append_little_endian(variable.bytes, std::bit_cast<uint32_t>(static_cast<float>(value)));
  return variable;
}

uint8_t number_of_type(StoredType type) {
  return type == StoredType::kF16 ? 4 : type == StoredType::kBF16 ? 5 : 0;
}

int64_t code_of(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return 0;
    case Activation::kGeluTanh:
      return 1;
    case Activation::kSilu:
      return 2;
    default:
      return 3;
  }
}

constexpr const char* kFarthest = "relative_attention_max_distance";

// Sizes of heads and the factor of scores.
void add_attention(const ModelOptions& o, const std::string& attention,
                   CTranslate2Variables& variables) {
  const bool grouped = o.num_key_value_heads > 0 && o.num_key_value_heads != o.num_attention_heads;
  if (grouped) variables[attention + "num_heads_kv"] = int32(o.num_key_value_heads);
  if (o.head_size > 0) variables[attention + "head_dim"] = int32(o.head_size);
  if (o.attention_scale > 0) variables[attention + "queries_scale"] = real(o.attention_scale);
}

void add_stack(const ModelOptions& o, const std::string& side, int64_t layers,
               CTranslate2Variables& variables) {
  variables[side + "/num_heads"] = int16(o.num_attention_heads);
  variables[side + "/pre_norm"] = int8(o.norm_position == NormPosition::kPre ? 1 : 0);
  variables[side + "/activation"] = int8(code_of(o.hidden_act.activation));
  variables[side + "/scale_embeddings"] =
      real(o.scale_embeddings ? std::sqrt(static_cast<double>(o.hidden_size)) : 1);
  for (int64_t i = 0; i < layers; ++i) {
    const std::string attention = concat(side, "/layer_", i, "/self_attention/");
    add_attention(o, attention, variables);
    if (o.position_embedding == PositionEmbedding::kRelative) {
      variables[attention + kFarthest] = int32(o.relative_attention_max_distance);
    }
    if (o.position_embedding != PositionEmbedding::kRope) continue;
    variables[attention + "rotary_dim"] = int32(0);  // all of a head
    variables[attention + "rotary_interleave"] =
        int8(o.rope_layout == RopeLayout::kInterleaved ? 1 : 0);
    variables[attention + "rotary_base"] = real(o.rope_theta);
  }
  // Its own sinusoids have other frequencies, so that the table is always written.
  const int64_t rows = std::max(kLeastPositions, o.max_position_embeddings);
  const std::string table = side + "/position_encodings/encodings";
  const Shape shape{rows, o.hidden_size};
  const bool fairseq = o.position_embedding == PositionEmbedding::kFairseq;
  if (fairseq || o.position_embedding == PositionEmbedding::kSinusoidal) {
    variables[table] = {0, {}, TensorToWrite(table, shape, DType::kFloat32, [shape, fairseq] {
                          const auto make = fairseq ? fairseq_positions : sinusoidal_positions;
                          return make(shape[0], shape[1], DType::kFloat32, Device{});
                        })};
  } else if (o.position_embedding == PositionEmbedding::kNone) {
    variables[table] = {0, {}, TensorToWrite(table, shape, DType::kFloat32, [shape] {
                          return Tensor::zeros(shape, DType::kFloat32);
                        })};
  }
}

// Beside each norm, that 1 is added to its weights.
void add_unit_offsets(CTranslate2Variables& variables) {
  constexpr std::string_view kGamma = "gamma";
  std::vector<std::string> norms;
  for (const auto& [name, variable] : variables) {
    if (name.ends_with(kGamma)) norms.push_back(name.substr(0, name.size() - kGamma.size()));
  }
  for (const std::string& norm : norms) variables[norm + "layer_norm_use_residual"] = int8(1);
}

}  // namespace

CTranslate2Variables ctranslate2_variables(const ModelFiles& model, const std::string& dtype) {
  const Config& config = model.config;
  const ModelOptions& o = config.model;
  ModelFacts facts(config, counts_of(model));
  facts.biases = o.bias;
  facts.query_biases = o.has_query_bias();
  facts.attention_out_biases = o.has_attention_out_bias();
  facts.norm_biases = o.norm == NormKind::kLayer;  // one without beta is taken for an RMSNorm
  CTranslate2Variables variables;
  if (facts.both_sides) {
    add_stack(o, "encoder", o.encoder_layers, variables);
    variables["encoder/embeddings_merge"] = int8(0);
    for (int64_t i = 0; i < o.decoder_layers; ++i) {
      add_attention(o, concat("decoder/layer_", i, "/attention/"), variables);
    }
  }
  add_stack(o, "decoder", facts.both_sides ? o.decoder_layers : o.num_hidden_layers, variables);
  variables["decoder/alignment_layer"] = int16(-1);
  variables["decoder/alignment_heads"] = int16(1);
  variables["decoder/start_from_zero_embedding"] = int8(0);
  if (o.logit_scale != 1) variables["decoder/scale_outputs"] = real(o.logit_scale);
  const std::span<const TensorRow> rows =
      facts.both_sides ? std::span<const TensorRow>(kBothSides) : kCausal;
  for (TensorToWrite& tensor :
       converted_tensors(model, expand(rows, facts), layout_of(facts), DType::kFloat32)) {
    const std::string name = tensor.name;
    variables[name] = {0, {}, std::move(tensor)};
  }
  if (o.norm_unit_offset) add_unit_offsets(variables);
  // Numbers stay what they are: their engine takes the model's type from the weights.
  for (auto& [name, variable] : variables) {
    if (!variable.tensor) continue;
    std::vector<TensorToWrite> one = {std::move(*variable.tensor)};
    store_as(dtype, one);
    variable.tensor = std::move(one.front());
    variable.type = number_of_type(variable.tensor->stored);
  }
  return variables;
}

// Tables that are one.
std::map<std::string, std::string> ctranslate2_aliases(const ModelFiles& model) {
  const ModelFacts facts(model.config, counts_of(model));
  std::map<std::string, std::string> aliases;
  if (facts.shared) aliases["encoder/embeddings_0/weight"] = "decoder/embeddings/weight";
  if (facts.tied) aliases["decoder/projection/weight"] = "decoder/embeddings/weight";
  // The biases of the first layer are those of all.
  const auto add_biases = [&](const std::string& side, int64_t layers) {
    const auto name = [&](int64_t layer) {
      return concat(side, "/layer_", layer, "/self_attention/relative_attention_bias");
    };
    for (int64_t i = 1; i < layers; ++i) aliases[name(i)] = name(0);
  };
  if (facts.both_sides && facts.relative) {
    add_biases("encoder", model.config.model.encoder_layers);
    add_biases("decoder", model.config.model.decoder_layers);
  }
  return aliases;
}

}  // namespace tapestry::interop
