// Llama and its kin: Mistral, Qwen2 and Qwen3.
#include <array>

#include "apps/interop/architectures/causal_keys.h"

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
