// Causal models whose attention and feed-forward network read one norm: GPT-J, Phi, and Cohere's
// two.
#include "apps/interop/architectures/causal_keys.h"
#include "apps/interop/foreign_config.h"

namespace tapestry::interop {
namespace {

constexpr FixedOption kParallel{"parallel_residual", "true"}, kSharedNorm{"shared_norm", "true"};

constexpr KeyRow kGptjKeys[] = {
    {"n_positions", "max_position_embeddings", "2048"},
    {"n_embd", "hidden_size", "4096"},
    {"n_layer", "num_hidden_layers", "28"},
    {"n_head", "num_attention_heads", "16"},
    {"n_inner", "intermediate_size", "null"},
    {"activation_function", "hidden_act", "\"gelu_new\""},
    {"resid_pdrop", "dropout", "0.0"},
    {"embd_pdrop", "dropout", "0.0", 0, true},
    {"attn_pdrop", "attention_dropout", "0.0"},
    {"layer_norm_epsilon", "norm_eps", "1e-05"},
    {"initializer_range", "initializer_range", "0.02"},
    {"tie_word_embeddings", "tie_word_embeddings", "false"},
};
constexpr ClassDefault kGptjIds[] = {
    {"vocab_size", "50400"}, {"bos_token_id", "50256"}, {"eos_token_id", "50256"}};
constexpr FixedOption kGptjOptions[] = {
    {"norm", "layernorm"},
    {"norm_position", "pre"},
    {"position_embedding", "rope"},
    {"final_norm", "true"},
    {"bias", "true", true},
    {"attention_bias", "none"},
    {"scale_embeddings", "false", true},
    kParallel,
    kSharedNorm,
};
constexpr TensorRow kGptjTensors[] = {
    {"transformer.wte.weight", "embedding.weight", "V", "D"},
    {"transformer.h.#.ln_1.*", "layers.#.self_attention_norm.*", "D"},
    {"transformer.h.#.attn.{q_proj,k_proj,v_proj}.weight", "layers.#.self_attention.qkv.weight",
     "DDD", "D", Stream::kNone, Change::kToNeighbours},
    {"transformer.h.#.attn.out_proj.weight", "layers.#.self_attention.out.weight", "D", "D"},
    {"transformer.h.#.mlp.fc_in.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"transformer.h.#.mlp.fc_out.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"transformer.ln_f.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
    {"lm_head.bias", "output.bias", "V", "", Stream::kNone, Change::kNone, nullptr,
     /*optional=*/true},
};

// Pairs of a part of a head would have to change places within that part.
void refuse_part(const Config& config, RopeLayout theirs, const char* name, Reasons& reasons) {
  const ModelOptions& model = config.model;
  if (model.rope_layout == theirs || model.partial_rotary_factor == 1) return;
  const char* const ours = theirs == RopeLayout::kHalf ? "interleaved" : "half";
  reasons.push_back(
      concat("model.rope_layout: ", ours, " (with partial_rotary_factor) has no place in ", name));
}

void read_gptj(const Json& theirs, Json& model, Reasons& reasons) {
  const auto width = model.at("hidden_size").get<int64_t>();
  const Json inner = value_of(theirs, "n_inner", Json());
  if (inner.is_null()) model["intermediate_size"] = 4 * width;
  model["rope_theta"] = 10000.0;
  model["rope_layout"] = "interleaved";
  model["rope_scaling"] = {{"type", "none"}};
  model["output_bias"] = true;
  const int64_t head = width / std::max<int64_t>(1, model.at("num_attention_heads").get<int64_t>());
  const auto found = theirs.find("rotary_dim");
  const Json size = found == theirs.end() ? Json(64) : found->is_null() ? Json(head) : *found;
  const bool sound = size.is_number_integer() && size.get<int64_t>() > 0 &&
                     size.get<int64_t>() <= head && size.get<int64_t>() % 2 == 0;
  if (!sound) {
    reasons.push_back(concat("rotary_dim is ", size.dump(), ", expected an even number up to ",
                             head, ", the size of a head"));
    return;
  }
  model["partial_rotary_factor"] = size.get<double>() / static_cast<double>(head);
}

void write_gptj(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  theirs["rotary_dim"] = attention_options(model, 1).rotary_size();
}

void refuse_gptj(const Config& config, Reasons& reasons) {
  const ModelOptions& model = config.model;
  refuse_part(config, RopeLayout::kInterleaved, "gptj", reasons);
  constexpr double kTheta = 10000;
  if (model.rope_theta != kTheta) {
    reasons.push_back(concat("model.rope_theta: ", model.rope_theta, " has no place in gptj"));
  }
  if (model.rope_scaling.type != RopeScalingType::kNone) {
    reasons.emplace_back("model.rope_scaling has no place in gptj");
  }
}

constexpr KeyRow kPhiKeys[] = {
    {"hidden_size", "hidden_size", "2048"},
    {"intermediate_size", "intermediate_size", "8192"},
    {"num_hidden_layers", "num_hidden_layers", "24"},
    {"num_attention_heads", "num_attention_heads", "32"},
    {"num_key_value_heads", "num_key_value_heads", "null"},
    {"hidden_act", "hidden_act", "\"gelu_new\""},
    {"resid_pdrop", "dropout", "0.0"},
    {"embd_pdrop", "dropout", "0.0", 0, true},
    {"attention_dropout", "attention_dropout", "0.0"},
    {"max_position_embeddings", "max_position_embeddings", "2048"},
    {"layer_norm_eps", "norm_eps", "1e-05"},
    {"initializer_range", "initializer_range", "0.02"},
    {"tie_word_embeddings", "tie_word_embeddings", "false"},
};
constexpr FixedKey kPhiFixed[] = {{"qk_layernorm", "false", "false"}};
constexpr ClassDefault kPhiIds[] = {
    {"vocab_size", "51200"}, {"bos_token_id", "1"}, {"eos_token_id", "2"}};
constexpr FixedOption kPhiOptions[] = {
    {"norm", "layernorm"},
    {"norm_position", "pre"},
    {"position_embedding", "rope"},
    {"final_norm", "true"},
    {"bias", "true", true},
    {"scale_embeddings", "false", true},
    kParallel,
    kSharedNorm,
};
constexpr TensorRow kPhiTensors[] = {
    {"model.embed_tokens.weight", "embedding.weight", "V", "D"},
    {"model.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*", "D"},
    {"model.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "layers.#.self_attention.qkv.*", "QKK",
     "D", Stream::kNone, Change::kToHalves},
    {"model.layers.#.self_attn.dense.*", "layers.#.self_attention.out.*", "D", "Q"},
    {"model.layers.#.mlp.fc1.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"model.layers.#.mlp.fc2.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"model.final_layernorm.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
    {"lm_head.bias", "output.bias", "V", "", Stream::kNone, Change::kNone, nullptr,
     /*optional=*/true},
};

void read_phi(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  read_rotary_share(theirs, 0.5, model, reasons);
  model["output_bias"] = true;
}

void write_phi(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  write_rotary_share(model, theirs);
  theirs.erase("head_dim");  // the class has none
}

void refuse_phi(const Config& config, Reasons& reasons) {
  refuse_part(config, RopeLayout::kHalf, "phi", reasons);
}

constexpr std::array<KeyRow, 12> kCohereKeys = {{
    {"hidden_size", "hidden_size", "8192"},
    {"intermediate_size", "intermediate_size", "22528"},
    {"num_hidden_layers", "num_hidden_layers", "40"},
    {"num_attention_heads", "num_attention_heads", "64"},
    {"num_key_value_heads", "num_key_value_heads", "null"},
    {"hidden_act", "hidden_act", "\"silu\""},
    {"attention_dropout", "attention_dropout", "0.0"},
    {"max_position_embeddings", "max_position_embeddings", "8192"},
    {"layer_norm_eps", "norm_eps", "1e-05"},
    {"initializer_range", "initializer_range", "0.02"},
    {"logit_scale", "logit_scale", "0.0625"},
    {"tie_word_embeddings", "tie_word_embeddings", "true"},
}};
constexpr FixedKey kCohereFixed[] = {{"use_qk_norm", "false", "false"}};
constexpr ClassDefault kCohereIds[] = {{"vocab_size", "256000"},
                                       {"pad_token_id", "0"},
                                       {"bos_token_id", "5"},
                                       {"eos_token_id", "255001"}};
constexpr FixedOption kCohereOptions[] = {
    {"norm", "layernorm"},
    {"norm_position", "pre"},
    {"position_embedding", "rope"},
    {"final_norm", "true"},
    kNoBias,
    kUnscaled,
    kParallel,
    kSharedNorm,
};
constexpr TensorRow kCohereTensors[] = {
    {"model.embed_tokens.weight", "embedding.weight", "V", "D"},
    {"model.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*", "D"},
    {"model.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "layers.#.self_attention.qkv.*", "QKK",
     "D", Stream::kNone, Change::kToNeighbours},
    {"model.layers.#.self_attn.o_proj.*", "layers.#.self_attention.out.*", "D", "Q"},
    {"model.layers.#.mlp.{gate_proj,up_proj}.*", "layers.#.feed_forward.up.*", "FF", "D"},
    {"model.layers.#.mlp.down_proj.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"model.norm.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

void read_cohere_rope(const Json& theirs, double theta, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons, theta);
  model["rope_layout"] = "interleaved";
  read_attention_bias(theirs, model);
}

void read_cohere(const Json& theirs, Json& model, Reasons& reasons) {
  read_cohere_rope(theirs, 500000.0, model, reasons);
}

void write_cohere(const ModelFacts& facts, Json& theirs) {
  write_rope(facts.config.model, theirs);
  theirs.erase("head_dim");  // the class has none
  theirs["attention_bias"] = facts.config.model.has_query_bias();
}

// Layers with a window rotate, those that see all tokens know no positions.
void read_cohere2(const Json& theirs, Json& model, Reasons& reasons) {
  read_cohere_rope(theirs, 10000.0, model, reasons);
  const int64_t pattern = number_of(theirs, "sliding_window_pattern", 4, reasons);
  read_windows(
      theirs, [&](int64_t i) { return pattern > 0 && (i + 1) % pattern != 0; },
      value_of(theirs, "sliding_window", theirs.contains("sliding_window") ? Json() : Json(4096)),
      model, reasons);
  if (!model.contains("layer_types")) return;  // it is a reason
  std::vector<std::string> kinds;
  for (const Json& type : model["layer_types"]) {
    const bool full = type == name_of(LayerType::kFull);
    kinds.emplace_back(full ? name_of(LayerType::kNope) : type.get<std::string>());
  }
  if (kinds.empty() && model["attention_window"] == 0) kinds = {name_of(LayerType::kNope)};
  model["layer_types"] = kinds;
}

void write_cohere2(const ModelFacts& facts, Json& theirs) {
  write_cohere(facts, theirs);
  write_windows(facts.config.model, theirs);
}

void refuse_cohere2(const Config& config, Reasons& reasons) {
  for (const LayerType type : all_layers(config.model)) {
    if (type != LayerType::kFull) continue;
    reasons.emplace_back("model.layer_types: full has no place in cohere2, only window and nope");
    return;
  }
}

// What both of Cohere's have in common.
Architecture of_family(Architecture one) {
  one.prefix = "model.";
  one.type = ModelType::kDecoder;
  one.keys = kCohereKeys;
  one.options = kCohereOptions;
  one.tensors = kCohereTensors;
  one.skipped = {"model.layers.*.self_attn.rotary_emb.inv_freq", "lm_head.weight"};
  one.tied = {{"model.embed_tokens.weight", "lm_head.weight"}};
  one.may_lack_biases = true;
  one.gated = true;
  return one;
}

}  // namespace

extern const Architecture kGptj = {
    .name = "gptj",
    .prefix = "transformer.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "GPTJForCausalLM"}},
    .headless = "GPTJModel",
    .keys = kGptjKeys,
    .options = kGptjOptions,
    .ids = kGptjIds,
    .tensors = kGptjTensors,
    .skipped = {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias",
                "transformer.h.*.attn.embed_positions", "lm_head.weight"},
    .tied = {{"transformer.wte.weight", "lm_head.weight"}},
    .carried = {"partial_rotary_factor"},
    .read_more = read_gptj,
    .write_more = write_gptj,
    .refuse_more = refuse_gptj,
};

extern const Architecture kPhi = {
    .name = "phi",
    .prefix = "model.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "PhiForCausalLM"}},
    .headless = "PhiModel",
    .keys = kPhiKeys,
    .fixed = kPhiFixed,
    .options = kPhiOptions,
    .ids = kPhiIds,
    .tensors = kPhiTensors,
    .skipped = {"model.layers.*.self_attn.rotary_emb.inv_freq", "lm_head.weight"},
    .tied = {{"model.embed_tokens.weight", "lm_head.weight"}},
    .carried = {"partial_rotary_factor"},
    .read_more = read_phi,
    .write_more = write_phi,
    .refuse_more = refuse_phi,
};

extern const Architecture kCohere = of_family({.name = "cohere",
                                               .classes = {{"clm", "CohereForCausalLM"}},
                                               .headless = "CohereModel",
                                               .fixed = kCohereFixed,
                                               .ids = kCohereIds,
                                               .carried = {"attention_bias"},
                                               .read_more = read_cohere,
                                               .write_more = write_cohere});

extern const Architecture kCohere2 =
    of_family({.name = "cohere2",
               .classes = {{"clm", "Cohere2ForCausalLM"}},
               .headless = "Cohere2Model",
               .ids = kCohereIds,
               .carried = {"attention_bias", "attention_window", "layer_types"},
               .has_nope = true,
               .read_more = read_cohere2,
               .write_more = write_cohere2,
               .refuse_more = refuse_cohere2});

}  // namespace tapestry::interop
