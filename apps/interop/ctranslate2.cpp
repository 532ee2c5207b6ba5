#include "apps/interop/ctranslate2.h"

#include <bit>
#include <cmath>
#include <set>

#include "apps/checkpoint/file_names.h"
#include "apps/interop/architectures/architectures.h"
#include "apps/interop/export_source.h"
#include "apps/interop/foreign_config.h"
#include "apps/interop/huggingface_tokenizer.h"
#include "apps/interop/special_ids.h"
#include "core/base/text.h"
#include "data/files/little_endian.h"
#include "nn/layers/layers.h"

namespace tapestry::interop {
namespace {

constexpr uint32_t kBinaryVersion = 6;
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
    {"$/layer_#/self_attention/linear_0/*", "$.layers.#.self_attention.qkv.*", "DKK", "D"},
    {"$/layer_#/self_attention/linear_1/*", "$.layers.#.self_attention.out.*", "D", "D"},
    {"$/layer_#/self_attention/layer_norm/@", "$.layers.#.self_attention_norm.*", "D"},
    {"decoder/layer_#/attention/linear_0/*", "decoder.layers.#.cross_attention.q.*", "D", "D"},
    {"decoder/layer_#/attention/linear_1/*", "decoder.layers.#.cross_attention.kv.*", "KK", "D"},
    {"decoder/layer_#/attention/linear_2/*", "decoder.layers.#.cross_attention.out.*", "D", "D"},
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

// A variable of model.bin: a number, or a tensor.
struct Variable {
  uint8_t type;  ///< 0 float32, 1 int8, 2 int16, 3 int32, 4 float16, 5 bfloat16
  std::string bytes = {};
  std::optional<TensorToWrite> tensor = {};
};
using Variables = std::map<std::string, Variable>;

Variable int8(int64_t value) { return {1, std::string(1, static_cast<char>(value))}; }
Variable int16(int64_t value) {
  Variable variable{2};
  append_little_endian(variable.bytes, static_cast<uint16_t>(value));
  return variable;
}
Variable int32(int64_t value) {
  Variable variable{3};
  append_little_endian(variable.bytes, static_cast<uint32_t>(value));
  return variable;
}
Variable real(double value) {
  Variable variable{0};
  append_little_endian(variable.bytes, std::bit_cast<uint32_t>(static_cast<float>(value)));
  return variable;
}

uint8_t number_of(StoredType type) {
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

// Keys of our `model` section that their engine has a place for, or that are looked at below.
constexpr const char* kFeatures[] = {"dropout",
                                     "attention_dropout",
                                     "activation_dropout",
                                     "num_key_value_heads",
                                     "value_head_size",
                                     "attention_bias",
                                     "embedding_norm",
                                     "output_bias",
                                     "share_encoder_decoder_embeddings"};
// The same of a causal model.
constexpr const char* kCausalFeatures[] = {"qk_norm", "head_size", "norm_unit_offset"};

Reasons reasons_against(const ModelFiles& model) {
  const Config& config = model.config;
  const ModelOptions& options = config.model;
  Reasons reasons;
  const auto expect = [&](bool ok, const std::string& what) {
    if (!ok) reasons.push_back(what);
  };
  const ModelType type = config.model_type;
  if (type != ModelType::kEncoderDecoder && type != ModelType::kDecoder) {
    return {concat("model.type: ", name_of(type))};
  }
  expect(options.norm != NormKind::kBatch, "model.norm: batchnorm");
  expect(options.has_final_norm() == (options.norm_position == NormPosition::kPre),
         "model.final_norm, which pre-norm models have and others have not");
  const bool causal = type == ModelType::kDecoder;
  std::vector<const char*> features(std::begin(kFeatures), std::end(kFeatures));
  if (causal)
    features.insert(features.end(), std::begin(kCausalFeatures), std::end(kCausalFeatures));
  for (const std::string& feature : features_beside(features, config)) reasons.push_back(feature);
  expect(options.qk_norm != QkNorm::kProjection, "model.qk_norm: projection");
  expect(causal || (options.has_query_bias() == options.bias &&
                    options.has_attention_out_bias() == options.bias),
         "model.attention_bias");
  expect(options.value_head_size == 0 || options.value_head_size == options.chosen_head_size(),
         "model.value_head_size");
  const NormPosition norms = options.norm_position;
  expect(norms == NormPosition::kPost || norms == NormPosition::kPre,
         concat("model.norm_position: ", name_of(norms)));
  expect(options.rope_scaling.type == RopeScalingType::kNone, "model.rope_scaling");
  const Activation act = options.hidden_act.activation;
  expect(act == Activation::kRelu || act == Activation::kGelu || act == Activation::kGeluTanh ||
             act == Activation::kSilu,
         concat("model.hidden_act: ", name_of(options.hidden_act)));
  const PositionEmbedding positions = options.position_embedding;
  expect(positions != PositionEmbedding::kAlibi && positions != PositionEmbedding::kRelative,
         "model.position_embedding that depends on the distance");
  if (type == ModelType::kEncoderDecoder) {
    const tapestry::SpecialIds& read = model.tokenizers.source->special();
    const TextFrame side = read.side();
    const bool plain = side.before.empty() || side.before == std::vector<int32_t>{read.bos};
    expect(plain && side.after == std::vector<int32_t>{read.eos} &&
               model.tokenizers.target->special().target().before.empty(),
           "what the tokenizer puts around texts beside bos and eos");
  }
  return reasons;
}

void add_stack(const ModelOptions& o, const std::string& side, int64_t layers,
               Variables& variables) {
  variables[side + "/num_heads"] = int16(o.num_attention_heads);
  variables[side + "/pre_norm"] = int8(o.norm_position == NormPosition::kPre ? 1 : 0);
  variables[side + "/activation"] = int8(code_of(o.hidden_act.activation));
  variables[side + "/scale_embeddings"] =
      real(o.scale_embeddings ? std::sqrt(static_cast<double>(o.hidden_size)) : 1);
  const bool grouped = o.num_key_value_heads > 0 && o.num_key_value_heads != o.num_attention_heads;
  for (int64_t i = 0; i < layers; ++i) {
    const std::string attention = concat(side, "/layer_", i, "/self_attention/");
    if (grouped) variables[attention + "num_heads_kv"] = int32(o.num_key_value_heads);
    if (o.head_size > 0) variables[attention + "head_dim"] = int32(o.head_size);
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
void add_unit_offsets(Variables& variables) {
  constexpr std::string_view kGamma = "gamma";
  std::vector<std::string> norms;
  for (const auto& [name, variable] : variables) {
    if (name.ends_with(kGamma)) norms.push_back(name.substr(0, name.size() - kGamma.size()));
  }
  for (const std::string& norm : norms) variables[norm + "layer_norm_use_residual"] = int8(1);
}

Variables variables_of(const ModelFiles& model, const std::string& dtype) {
  const Config& config = model.config;
  const ModelOptions& o = config.model;
  ModelFacts facts(config, counts_of(model));
  facts.biases = o.bias;
  facts.query_biases = o.has_query_bias();
  facts.attention_out_biases = o.has_attention_out_bias();
  facts.norm_biases = o.norm == NormKind::kLayer;  // one without beta is taken for an RMSNorm
  Variables variables;
  if (facts.both_sides) {
    add_stack(o, "encoder", o.encoder_layers, variables);
    variables["encoder/embeddings_merge"] = int8(0);
    const bool grouped =
        o.num_key_value_heads > 0 && o.num_key_value_heads != o.num_attention_heads;
    for (int64_t i = 0; grouped && i < o.decoder_layers; ++i) {
      variables[concat("decoder/layer_", i, "/attention/num_heads_kv")] =
          int32(o.num_key_value_heads);
    }
  }
  add_stack(o, "decoder", facts.both_sides ? o.decoder_layers : o.num_hidden_layers, variables);
  variables["decoder/alignment_layer"] = int16(-1);
  variables["decoder/alignment_heads"] = int16(1);
  variables["decoder/start_from_zero_embedding"] = int8(0);
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
    variable.type = number_of(variable.tensor->stored);
  }
  return variables;
}

// Tables that are one.
std::map<std::string, std::string> aliases_of(const ModelFiles& model) {
  const ModelFacts facts(model.config, counts_of(model));
  std::map<std::string, std::string> aliases;
  if (facts.shared) aliases["encoder/embeddings_0/weight"] = "decoder/embeddings/weight";
  if (facts.tied) aliases["decoder/projection/weight"] = "decoder/embeddings/weight";
  return aliases;
}

class Writer {
 public:
  explicit Writer(const ByteSink& sink) : sink_(sink) {}

  template <std::unsigned_integral T>
  void number(T value) {
    std::string bytes;
    append_little_endian(bytes, value);
    raw(bytes);
  }
  void text(const std::string& text) {
    number(static_cast<uint16_t>(text.size() + 1));
    sink_(text.c_str(), text.size() + 1);
  }
  void raw(const std::string& bytes) { sink_(bytes.data(), bytes.size()); }

  void variable(const std::string& name, const Variable& variable) {
    text(name);
    const Shape shape = variable.tensor ? variable.tensor->shape : Shape{};
    number(static_cast<uint8_t>(shape.rank()));
    for (int i = 0; i < shape.rank(); ++i) number(static_cast<uint32_t>(shape[i]));
    number(variable.type);
    if (!variable.tensor) {
      number(static_cast<uint32_t>(variable.bytes.size()));
      return raw(variable.bytes);
    }
    const Tensor tensor = variable.tensor->content();
    number(static_cast<uint32_t>(variable.tensor->bytes()));
    if (as_dtype(variable.tensor->stored) == tensor.dtype()) {
      return sink_(tensor.raw(), static_cast<size_t>(tensor.bytes()));
    }
    raw(elements_as(variable.tensor->stored, tensor));
  }

 private:
  const ByteSink& sink_;
};

Json vocabulary(const Tokenizer& tokenizer) {
  Json pieces = Json::array();
  std::set<std::string> seen;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece = tokenizer.piece(id);
    if (!seen.insert(piece).second) {
      fail(ErrorKind::kConfig, "[export] the vocabulary has '", piece,
           "' twice, CTranslate2 needs each piece once.");
    }
    pieces.push_back(piece);
  }
  return pieces;
}

Json their_config(const ModelFiles& model, bool both_sides) {
  const SpecialIds ids = special_ids(*model.tokenizers.target);
  const auto piece = [&](std::optional<int32_t> id) {
    return id ? model.tokenizers.target->piece(*id) : std::string();
  };
  Json config = {
      {"unk_token", piece(ids.unk)}, {"bos_token", piece(ids.bos)}, {"eos_token", piece(ids.eos)}};
  if (both_sides) {
    const tapestry::SpecialIds& target = model.tokenizers.target->special();
    config["decoder_start_token"] = piece(target.start.value_or(target.bos));
    const tapestry::SpecialIds& source = model.tokenizers.source->special();
    config["add_source_bos"] = source.side().before == std::vector<int32_t>{source.bos};
    config["add_source_eos"] = true;
  }
  config["layer_norm_epsilon"] = model.config.model.norm_eps;
  config["multi_query_attention"] = false;
  return config;
}

}  // namespace

std::vector<std::string> ctranslate2_notes(const ModelFiles& model) {
  const Tokenizer& tokenizer = *model.tokenizers.target;
  const std::vector<int32_t>& more = tokenizer.special().more_ends;
  if (more.empty()) return {};
  return {
      concat("config.json of CTranslate2 has one end of a text, '",
             tokenizer.piece(tokenizer.special().eos),
             "': a program must give the others as end_token: ", quoted_tokens(tokenizer, more))};
}

CheckpointContent ctranslate2_files(const ModelFiles& model, const std::string& dtype) {
  if (const Reasons reasons = reasons_against(model); !reasons.empty()) {
    fail(ErrorKind::kConfig, "[export] CTranslate2 has no place for:\n  ", join(reasons, ";\n  "),
         '.');
  }
  const bool both_sides = model.config.model_type == ModelType::kEncoderDecoder;
  CheckpointContent files;
  files[kConfigFile] = their_config(model, both_sides).dump(2) + "\n";
  const auto lists = [&](const char* name, const Tokenizer& tokenizer) {
    files[name] = vocabulary(tokenizer).dump(2) + "\n";
  };
  if (!both_sides) {
    lists("vocabulary.json", *model.tokenizers.source);
  } else if (model.tokenizers.shared()) {
    lists("shared_vocabulary.json", *model.tokenizers.source);
  } else {
    lists("source_vocabulary.json", *model.tokenizers.source);
    lists("target_vocabulary.json", *model.tokenizers.target);
  }
  for (auto& [name, bytes] : own_files(model.tokenizers)) files[name] = std::move(bytes);
  files["model.bin"] = [variables = variables_of(model, dtype), aliases = aliases_of(model),
                        both_sides](const ByteSink& sink) {
    Writer writer(sink);
    writer.number(kBinaryVersion);
    writer.text(both_sides ? "TransformerSpec" : "TransformerDecoderSpec");
    writer.number(uint32_t{both_sides ? 7u : 8u});  // revision
    writer.number(static_cast<uint32_t>(variables.size()));
    for (const auto& [name, variable] : variables) writer.variable(name, variable);
    writer.number(static_cast<uint32_t>(aliases.size()));
    for (const auto& [alias, name] : aliases) {
      writer.text(alias);
      writer.text(name);
    }
  };
  return files;
}

}  // namespace tapestry::interop
