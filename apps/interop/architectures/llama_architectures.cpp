// Llama and its kin: Mistral, Qwen2 and Qwen3.
#include <array>

#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {
namespace {

constexpr std::array<KeyRow, 11> keys(const char* intermediate_size, const char* groups,
                                      const char* positions) {
  return {{
      {"hidden_size", "hidden_size", "4096"},
      {"intermediate_size", "intermediate_size", intermediate_size},
      {"num_hidden_layers", "num_hidden_layers", "32"},
      {"num_attention_heads", "num_attention_heads", "32"},
      {"num_key_value_heads", "num_key_value_heads", groups},
      {"hidden_act", "hidden_act", "\"silu\""},
      {"max_position_embeddings", "max_position_embeddings", positions},
      {"rms_norm_eps", "norm_eps", "1e-06"},
      {"initializer_range", "initializer_range", "0.02"},
      {"attention_dropout", "attention_dropout", "0.0"},
      {"tie_word_embeddings", "tie_word_embeddings", "false"},
  }};
}
constexpr auto kLlamaKeys = keys("11008", "null", "2048");
constexpr auto kMistralKeys = keys("14336", "8", "131072");
constexpr auto kQwenKeys = keys("22016", "32", "32768");
constexpr FixedKey kQwenFixed[] = {{"use_sliding_window", "false", "false"}};
constexpr ClassDefault kQwenIds[] = {{"vocab_size", "151936"}};
constexpr ClassDefault kLlamaIds[] = {
    {"vocab_size", "32000"}, {"bos_token_id", "1"}, {"eos_token_id", "2"}};
// What all have, and what one has besides.
template <class... Own>
constexpr std::array<FixedOption, 5 + sizeof...(Own)> options(Own... own) {
  return {{
      {"norm", "rmsnorm"},
      {"norm_position", "pre"},
      {"position_embedding", "rope"},
      {"final_norm", "true"},
      {"scale_embeddings", "false", true},
      own...,
  }};
}
constexpr FixedOption kNoBias{"bias", "false"};
constexpr auto kLlamaOptions = options();
constexpr auto kMistralOptions = options(kNoBias);
constexpr auto kQwen2Options = options(kNoBias, FixedOption{"attention_bias", "qkv"});
constexpr auto kQwen3Options = options(kNoBias, FixedOption{"qk_norm", "head"});
constexpr TensorRow kLlamaTensors[] = {
    {"model.embed_tokens.weight", "embedding.weight", "V", "D"},
    {"model.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*", "D"},
    {"model.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "layers.#.self_attention.qkv.*", "QKK",
     "D", Stream::kNone, Change::kToHalves},
    {"model.layers.#.self_attn.q_norm.weight", "layers.#.self_attention.q_norm.weight", "H", "",
     Stream::kNone, Change::kNone, &ModelFacts::normed_heads},
    {"model.layers.#.self_attn.k_norm.weight", "layers.#.self_attention.k_norm.weight", "H", "",
     Stream::kNone, Change::kNone, &ModelFacts::normed_heads},
    {"model.layers.#.self_attn.o_proj.*", "layers.#.self_attention.out.*", "D", "Q"},
    {"model.layers.#.post_attention_layernorm.*", "layers.#.feed_forward_norm.*", "D"},
    {"model.layers.#.mlp.{gate_proj,up_proj}.*", "layers.#.feed_forward.up.*", "FF", "D"},
    {"model.layers.#.mlp.down_proj.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"model.norm.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

Json value_of(const Json& object, const char* key, const Json& fallback) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? fallback : *found;
}

// Files of today have rope_parameters; older ones rope_theta beside a rope_scaling that may be
// null.
void read_rope(const Json& theirs, Json& model, Reasons& reasons) {
  const Json parameters = value_of(theirs, "rope_parameters", Json::object());
  const Json scaling = value_of(theirs, "rope_scaling", parameters);
  if (!parameters.is_object() || !scaling.is_object()) {
    reasons.emplace_back("rope_parameters and rope_scaling must be objects");
    return;
  }
  model["rope_theta"] =
      value_of(parameters, "rope_theta", value_of(theirs, "rope_theta", Json(10000.0)));
  model["rope_layout"] = "half";
  model["rope_scaling"] = {{"type", "none"}};
  const Json type = value_of(scaling, "rope_type", value_of(scaling, "type", Json("default")));
  if (type == "default") return;
  Json ours = {{"type", type}, {"factor", value_of(scaling, "factor", Json(1.0))}};
  if (type == "llama3") {
    for (const char* key :
         {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      if (!scaling.contains(key)) reasons.push_back(concat("rope_parameters lacks ", key));
      ours[key] = value_of(scaling, key, Json(1));
    }
  } else if (type != "linear") {
    reasons.push_back(concat("rope_type ", type.dump(), " is none of default, linear, llama3"));
    return;
  }
  model["rope_scaling"] = ours;
}

// The size of a head, `usual` where the file says nothing; null: hidden_size / num_attention_heads.
void read_head_size(const Json& theirs, const Json& usual, Json& model, Reasons& reasons) {
  const auto found = theirs.find("head_dim");
  const Json size = found == theirs.end() ? usual : *found;
  if (size.is_null()) return;
  if (!size.is_number_integer() || size.get<int64_t>() < 1) {
    reasons.push_back(concat("head_dim is ", size.dump(), ", expected a size"));
    return;
  }
  model["head_size"] = size;
}

void read_attention_bias(const Json& theirs, Json& model) {
  const Json attention = value_of(theirs, "attention_bias", false);
  if (attention != model.at("bias")) model["attention_bias"] = attention == true ? "all" : "none";
}

// Layers that see a window only are listed, and so are those that see all.
void refuse_windows(const Json& theirs, Reasons& reasons) {
  const Json types = value_of(theirs, "layer_types", Json::array());
  for (const Json& type : types) {
    if (type == "full_attention") continue;
    reasons.push_back(
        concat("layer_types has ", type.dump(), ", ours have one attention_window for all layers"));
    return;
  }
}

void write_rope(const ModelOptions& model, Json& theirs) {
  const RopeScaling& scaling = model.rope_scaling;
  const bool scaled = scaling.type != RopeScalingType::kNone;
  Json rope = {{"rope_type", scaled ? name_of(scaling.type) : "default"},
               {"rope_theta", model.rope_theta}};
  if (scaled) rope["factor"] = scaling.factor;
  if (scaling.type == RopeScalingType::kLlama3) {
    rope["low_freq_factor"] = scaling.low_freq_factor;
    rope["high_freq_factor"] = scaling.high_freq_factor;
    rope["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  }
  if (scaled) theirs["rope_scaling"] = rope;
  theirs["rope_theta"] = model.rope_theta;
  theirs["rope_parameters"] = rope;
  theirs["head_dim"] = model.chosen_head_size();
}

void read_llama(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, nullptr, model, reasons);
  model["bias"] = value_of(theirs, "mlp_bias", false);
  read_attention_bias(theirs, model);
}

void write_llama(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs["attention_bias"] = model.has_query_bias();
  theirs["mlp_bias"] = model.bias;
}

void read_mistral(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, nullptr, model, reasons);
  refuse_windows(theirs, reasons);
  const auto found = theirs.find("sliding_window");
  const Json window = found == theirs.end() ? Json(4096) : *found;
  if (!window.is_null() && !window.is_number_integer()) {
    reasons.push_back(concat("sliding_window is ", window.dump(), ", expected an integer or null"));
    return;
  }
  model["attention_window"] = window.is_null() ? Json(0) : window;
}

void write_mistral(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs["sliding_window"] =
      model.attention_window > 0 ? Json(model.attention_window) : Json(nullptr);
}

void read_qwen2(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, nullptr, model, reasons);
  refuse_windows(theirs, reasons);
}

void write_qwen2(const ModelFacts& facts, Json& theirs) { write_rope(facts.config.model, theirs); }

void read_qwen3(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, 128, model, reasons);
  refuse_windows(theirs, reasons);
  read_attention_bias(theirs, model);
}

void write_qwen3(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs["attention_bias"] = model.has_query_bias();
}

// What the classes of this family have in common.
Architecture of_family(Architecture one) {
  one.prefix = "model.";
  one.type = ModelType::kDecoder;
  one.tensors = kLlamaTensors;
  one.skipped = {"model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq",
                 "lm_head.weight"};
  one.tied = {{"model.embed_tokens.weight", "lm_head.weight"}};
  one.may_lack_biases = true;
  one.gated = true;
  return one;
}

}  // namespace

extern const Architecture kLlama = of_family({.name = "llama",
                                              .classes = {{"clm", "LlamaForCausalLM"}},
                                              .headless = "LlamaModel",
                                              .keys = kLlamaKeys,
                                              .options = kLlamaOptions,
                                              .ids = kLlamaIds,
                                              .carried = {"head_size", "attention_bias"},
                                              .read_more = read_llama,
                                              .write_more = write_llama});

extern const Architecture kMistral = of_family({.name = "mistral",
                                                .classes = {{"clm", "MistralForCausalLM"}},
                                                .headless = "MistralModel",
                                                .keys = kMistralKeys,
                                                .options = kMistralOptions,
                                                .ids = kLlamaIds,
                                                .carried = {"head_size", "attention_window"},
                                                .read_more = read_mistral,
                                                .write_more = write_mistral});

extern const Architecture kQwen2 = of_family({.name = "qwen2",
                                              .classes = {{"clm", "Qwen2ForCausalLM"}},
                                              .headless = "Qwen2Model",
                                              .keys = kQwenKeys,
                                              .fixed = kQwenFixed,
                                              .options = kQwen2Options,
                                              .ids = kQwenIds,
                                              .carried = {"head_size"},
                                              .read_more = read_qwen2,
                                              .write_more = write_qwen2});

extern const Architecture kQwen3 = of_family({.name = "qwen3",
                                              .classes = {{"clm", "Qwen3ForCausalLM"}},
                                              .headless = "Qwen3Model",
                                              .keys = kQwenKeys,
                                              .fixed = kQwenFixed,
                                              .options = kQwen3Options,
                                              .ids = kQwenIds,
                                              .carried = {"head_size", "attention_bias"},
                                              .read_more = read_qwen3,
                                              .write_more = write_qwen3});

}  // namespace tapestry::interop
