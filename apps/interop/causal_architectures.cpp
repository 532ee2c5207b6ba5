// GPT-2 and Llama.
#include "apps/interop/architectures.h"

namespace tapestry::interop {
namespace {

constexpr KeyRow kGpt2Keys[] = {
    {"n_positions", "max_position_embeddings", "1024"},
    {"n_embd", "hidden_size", "768"},
    {"n_layer", "num_hidden_layers", "12"},
    {"n_head", "num_attention_heads", "12"},
    {"n_inner", "intermediate_size", "null"},
    {"activation_function", "hidden_act", "\"gelu_new\""},
    {"resid_pdrop", "dropout", "0.1"},
    {"embd_pdrop", "dropout", "0.1", 0, true},
    {"attn_pdrop", "attention_dropout", "0.1"},
    {"layer_norm_epsilon", "norm_eps", "1e-05"},
    {"initializer_range", "initializer_range", "0.02"},
    {"tie_word_embeddings", "tie_word_embeddings", "true"},
};
constexpr FixedKey kGpt2Fixed[] = {
    {"scale_attn_weights", "true", "true"},
    {"scale_attn_by_inverse_layer_idx", "false", "false"},
    {"add_cross_attention", "false", "false"},
};
constexpr ClassDefault kGpt2Ids[] = {
    {"vocab_size", "50257"}, {"bos_token_id", "50256"}, {"eos_token_id", "50256"}};
constexpr FixedOption kGpt2Options[] = {
    {"norm", "layernorm"},  {"norm_position", "pre"}, {"position_embedding", "learned"},
    {"final_norm", "true"}, {"bias", "true", true},   {"scale_embeddings", "false", true},
};
constexpr TensorRow kGpt2Tensors[] = {
    {"transformer.wte.weight", "embedding.weight", "V", "D"},
    {"transformer.wpe.weight", "positions.weight", "P", "D"},
    {"transformer.h.#.ln_1.*", "layers.#.self_attention_norm.*", "D"},
    {"transformer.h.#.attn.c_attn.*", "layers.#.self_attention.qkv.*", "DKK", "D", Stream::kNone,
     Change::kTranspose},
    {"transformer.h.#.attn.c_proj.*", "layers.#.self_attention.out.*", "D", "D", Stream::kNone,
     Change::kTranspose},
    {"transformer.h.#.ln_2.*", "layers.#.feed_forward_norm.*", "D"},
    {"transformer.h.#.mlp.c_fc.*", "layers.#.feed_forward.up.*", "F", "D", Stream::kNone,
     Change::kTranspose},
    {"transformer.h.#.mlp.c_proj.*", "layers.#.feed_forward.down.*", "D", "F", Stream::kNone,
     Change::kTranspose},
    {"transformer.ln_f.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

void read_gpt2(const Json& theirs, Json& model, Reasons&) {
  const auto inner = theirs.find("n_inner");
  if (inner == theirs.end() || inner->is_null()) {
    model["intermediate_size"] = 4 * model.at("hidden_size").get<int64_t>();
  }
}

// llama.cpp's converter reads n_ctx.
void write_gpt2(const ModelFacts& facts, Json& theirs) {
  theirs["n_ctx"] = facts.config.model.max_position_embeddings;
}

constexpr KeyRow kLlamaKeys[] = {
    {"hidden_size", "hidden_size", "4096"},
    {"intermediate_size", "intermediate_size", "11008"},
    {"num_hidden_layers", "num_hidden_layers", "32"},
    {"num_attention_heads", "num_attention_heads", "32"},
    {"num_key_value_heads", "num_key_value_heads", "null"},
    {"hidden_act", "hidden_act", "\"silu\""},
    {"max_position_embeddings", "max_position_embeddings", "2048"},
    {"rms_norm_eps", "norm_eps", "1e-06"},
    {"initializer_range", "initializer_range", "0.02"},
    {"attention_dropout", "attention_dropout", "0.0"},
    {"tie_word_embeddings", "tie_word_embeddings", "false"},
};
constexpr ClassDefault kLlamaIds[] = {
    {"vocab_size", "32000"}, {"bos_token_id", "1"}, {"eos_token_id", "2"}};
constexpr FixedOption kLlamaOptions[] = {
    {"norm", "rmsnorm"},
    {"norm_position", "pre"},
    {"position_embedding", "rope"},
    {"final_norm", "true"},
    {"scale_embeddings", "false", true},
};
constexpr TensorRow kLlamaTensors[] = {
    {"model.embed_tokens.weight", "embedding.weight", "V", "D"},
    {"model.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*", "D"},
    {"model.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "layers.#.self_attention.qkv.*", "DKK",
     "D", Stream::kNone, Change::kToHalves},
    {"model.layers.#.self_attn.o_proj.*", "layers.#.self_attention.out.*", "D", "D"},
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

void read_llama(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  const Json attention = value_of(theirs, "attention_bias", false);
  const Json mlp = value_of(theirs, "mlp_bias", false);
  if (attention != mlp) {
    reasons.push_back(concat("attention_bias is ", attention.dump(), " and mlp_bias ", mlp.dump(),
                             ": ours are one"));
  }
  model["bias"] = attention;
  const Json heads = model.at("num_attention_heads"), size = model.at("hidden_size");
  const Json head_size = value_of(theirs, "head_dim", nullptr);
  if (head_size.is_number() && heads.is_number() && size.is_number() &&
      head_size.get<int64_t>() * heads.get<int64_t>() != size.get<int64_t>()) {
    reasons.push_back(
        concat("head_dim is ", head_size.dump(), ", ours is hidden_size / num_attention_heads"));
  }
}

void write_llama(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  theirs["attention_bias"] = theirs["mlp_bias"] = model.bias;
  theirs["head_dim"] = model.hidden_size / model.num_attention_heads;
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
}

}  // namespace

const Architecture kGpt2 = {
    .name = "gpt2",
    .prefix = "transformer.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "GPT2LMHeadModel"}},
    .headless = "GPT2Model",
    .keys = kGpt2Keys,
    .fixed = kGpt2Fixed,
    .options = kGpt2Options,
    .ids = kGpt2Ids,
    .tensors = kGpt2Tensors,
    .skipped = {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias", "lm_head.weight"},
    .tied = {{"transformer.wte.weight", "lm_head.weight"}},
    .read_more = read_gpt2,
    .write_more = write_gpt2,
};

const Architecture kLlama = {
    .name = "llama",
    .prefix = "model.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "LlamaForCausalLM"}},
    .headless = "LlamaModel",
    .keys = kLlamaKeys,
    .fixed = {},
    .options = kLlamaOptions,
    .ids = kLlamaIds,
    .tensors = kLlamaTensors,
    .skipped = {"model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq",
                "lm_head.weight"},
    .tied = {{"model.embed_tokens.weight", "lm_head.weight"}},
    .gated = true,
    .read_more = read_llama,
    .write_more = write_llama,
};

}  // namespace tapestry::interop
