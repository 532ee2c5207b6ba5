// Llama and its kin: Mistral, Qwen2, Qwen3 and Phi-3.
#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

constexpr auto kLlamaKeys =
    causal_keys({.intermediate = "11008", .groups = "null", .positions = "2048"});
constexpr auto kMistralKeys =
    causal_keys({.intermediate = "14336", .groups = "8", .positions = "131072"});
constexpr auto kQwenKeys =
    causal_keys({.intermediate = "22016", .groups = "32", .positions = "32768"});
constexpr ClassDefault kQwenIds[] = {{"vocab_size", "151936"}};
constexpr ClassDefault kLlamaIds[] = {
    {"vocab_size", "32000"}, {"bos_token_id", "1"}, {"eos_token_id", "2"}};
constexpr auto kLlamaOptions = causal_options(kPreNorm, kUnscaled);
constexpr auto kMistralOptions = causal_options(kPreNorm, kUnscaled, kNoBias);
constexpr auto kQwen2Options =
    causal_options(kPreNorm, kUnscaled, kNoBias, FixedOption{"attention_bias", "qkv"});
constexpr auto kQwen3Options =
    causal_options(kPreNorm, kUnscaled, kNoBias, FixedOption{"qk_norm", "head"});

// The first max_window_layers see all tokens, the others a window.
void read_qwen_windows(const Json& theirs, Json& model, Reasons& reasons) {
  const bool uses = value_of(theirs, "use_sliding_window", false) == true;
  const int64_t full = number_of(theirs, "max_window_layers", 28, reasons);
  read_windows(
      theirs, [&](int64_t i) { return uses && i >= full; },
      uses ? value_of(theirs, "sliding_window", 4096) : Json(), model, reasons);
}

void write_qwen_windows(const ModelOptions& model, Json& theirs) {
  write_windows(model, theirs);
  theirs["use_sliding_window"] = model.attention_window > 0;
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
  const auto found = theirs.find("sliding_window");
  const Json window = found == theirs.end() ? Json(4096) : *found;
  if (!value_of(theirs, "layer_types", Json()).is_null()) {  // then it is their class ministral
    return read_windows(
        theirs, [](int64_t) { return true; }, window, model, reasons);
  }
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

// Theirs is then another class.
void refuse_mistral(const Config& config, Reasons& reasons) {
  if (config.model.layer_types.empty()) return;
  reasons.emplace_back("model.layer_types has no place in mistral, which has one kind of layers");
}

void read_qwen2(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, nullptr, model, reasons);
  read_qwen_windows(theirs, model, reasons);
}

void write_qwen2(const ModelFacts& facts, Json& theirs) {
  write_rope(facts.config.model, theirs);
  write_qwen_windows(facts.config.model, theirs);
}

void read_qwen3(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_head_size(theirs, 128, model, reasons);
  read_qwen_windows(theirs, model, reasons);
  read_attention_bias(theirs, model);
}

// Phi-3's projections are packed, as ours are.
constexpr auto kPhi3Keys = [] {
  constexpr auto own = causal_keys({.hidden = "3072",
                                    .intermediate = "8192",
                                    .groups = "null",
                                    .positions = "4096",
                                    .eps = "1e-05"});
  std::array<KeyRow, own.size() + 2> all{};
  for (size_t i = 0; i < own.size(); ++i) all[i] = own[i];
  all[own.size()] = {"resid_pdrop", "dropout", "0.0"};
  all[own.size() + 1] = {"embd_pdrop", "dropout", "0.0", 0, true};
  return all;
}();
constexpr ClassDefault kPhi3Ids[] = {{"vocab_size", "32064"},
                                     {"pad_token_id", "32000"},
                                     {"bos_token_id", "1"},
                                     {"eos_token_id", "32000"}};
constexpr TensorRow kPhi3Tensors[] = {
    {"model.embed_tokens.weight", "embedding.weight", "V", "D"},
    {"model.layers.#.input_layernorm.weight", "layers.#.self_attention_norm.weight", "D"},
    {"model.layers.#.self_attn.qkv_proj.weight", "layers.#.self_attention.qkv.weight", "QKK", "D",
     Stream::kNone, Change::kToHalves},
    {"model.layers.#.self_attn.o_proj.weight", "layers.#.self_attention.out.weight", "D", "Q"},
    {"model.layers.#.post_attention_layernorm.weight", "layers.#.feed_forward_norm.weight", "D"},
    {"model.layers.#.mlp.gate_up_proj.weight", "layers.#.feed_forward.up.weight", "FF", "D"},
    {"model.layers.#.mlp.down_proj.weight", "layers.#.feed_forward.down.weight", "D", "F"},
    {"model.norm.weight", "norm.weight", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

// The first releases had other names for longrope.
void read_phi3(const Json& theirs, Json& model, Reasons& reasons) {
  Json all = theirs;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!all.contains(key) || !all[key].is_object()) continue;
    for (const char* type : {"type", "rope_type"}) {
      const Json name = value_of(all[key], type, Json());
      if (name == "su" || name == "yarn") all[key][type] = "longrope";
    }
  }
  read_rope(all, model, reasons);
  read_rotary_share(theirs, 1.0, model, reasons);
  const Json window = value_of(theirs, "sliding_window", 0);
  if (!window.is_number_integer()) {
    reasons.push_back(concat("sliding_window is ", window.dump(), ", expected an integer or null"));
    return;
  }
  model["attention_window"] = window;
}

void write_phi3(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_mistral(facts, theirs);
  write_rotary_share(model, theirs);
  theirs.erase("head_dim");  // the class has none
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.type != RopeScalingType::kLongrope) return;
  theirs["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
}

void refuse_phi3(const Config& config, Reasons& reasons) {
  const ModelOptions& model = config.model;
  if (model.rope_layout == RopeLayout::kInterleaved && model.partial_rotary_factor != 1) {
    reasons.emplace_back(
        "model.rope_layout: interleaved (with partial_rotary_factor) has no place in phi3");
  }
  const RopeScalingType type = model.rope_scaling.type;
  if (type != RopeScalingType::kNone && type != RopeScalingType::kLongrope) {
    reasons.push_back(concat("model.rope_scaling: ", name_of(type), " has no place in phi3"));
  }
}

void write_qwen3(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  write_qwen_windows(model, theirs);
  theirs["attention_bias"] = model.has_query_bias();
}

}  // namespace

extern const Architecture kLlama = of_llama_family({.name = "llama",
                                                    .classes = {{"clm", "LlamaForCausalLM"}},
                                                    .headless = "LlamaModel",
                                                    .keys = kLlamaKeys,
                                                    .options = kLlamaOptions,
                                                    .ids = kLlamaIds,
                                                    .carried = {"head_size", "attention_bias"},
                                                    .read_more = read_llama,
                                                    .write_more = write_llama});

extern const Architecture kMistral =
    of_llama_family({.name = "mistral",
                     .classes = {{"clm", "MistralForCausalLM"}},
                     .headless = "MistralModel",
                     .keys = kMistralKeys,
                     .options = kMistralOptions,
                     .ids = kLlamaIds,
                     .carried = {"head_size", "attention_window", "layer_types"},
                     .read_more = read_mistral,
                     .write_more = write_mistral,
                     .refuse_more = refuse_mistral});

extern const Architecture kQwen2 =
    of_llama_family({.name = "qwen2",
                     .classes = {{"clm", "Qwen2ForCausalLM"}},
                     .headless = "Qwen2Model",
                     .keys = kQwenKeys,
                     .options = kQwen2Options,
                     .ids = kQwenIds,
                     .carried = {"head_size", "attention_window", "layer_types"},
                     .read_more = read_qwen2,
                     .write_more = write_qwen2});

extern const Architecture kQwen3 =
    of_llama_family({.name = "qwen3",
                     .classes = {{"clm", "Qwen3ForCausalLM"}},
                     .headless = "Qwen3Model",
                     .keys = kQwenKeys,
                     .options = kQwen3Options,
                     .ids = kQwenIds,
                     .carried = {"head_size", "attention_bias", "attention_window", "layer_types"},
                     .read_more = read_qwen3,
                     .write_more = write_qwen3});

extern const Architecture kPhi3 = {
    .name = "phi3",
    .prefix = "model.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "Phi3ForCausalLM"}},
    .headless = "Phi3Model",
    .keys = kPhi3Keys,
    .options = kMistralOptions,
    .ids = kPhi3Ids,
    .tensors = kPhi3Tensors,
    .skipped = {"model.layers.*.self_attn.rotary_emb.inv_freq", "lm_head.weight"},
    .tied = {{"model.embed_tokens.weight", "lm_head.weight"}},
    .gated = true,
    .carried = {"attention_window", "partial_rotary_factor"},
    .read_more = read_phi3,
    .write_more = write_phi3,
    .refuse_more = refuse_phi3,
};

}  // namespace tapestry::interop
