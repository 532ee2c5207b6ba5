// Causal models with LayerNorms and biases: GPT-2, GPT-BigCode (StarCoder), GPT-NeoX (Pythia), OPT
// and StarCoder 2.
#include "apps/interop/architectures/causal_keys.h"

namespace tapestry::interop {
namespace {

constexpr std::array<KeyRow, 12> gpt2_keys(const char* act) {
  return {{
      {"n_positions", "max_position_embeddings", "1024"},
      {"n_embd", "hidden_size", "768"},
      {"n_layer", "num_hidden_layers", "12"},
      {"n_head", "num_attention_heads", "12"},
      {"n_inner", "intermediate_size", "null"},
      {"activation_function", "hidden_act", act},
      {"resid_pdrop", "dropout", "0.1"},
      {"embd_pdrop", "dropout", "0.1", 0, true},
      {"attn_pdrop", "attention_dropout", "0.1"},
      {"layer_norm_epsilon", "norm_eps", "1e-05"},
      {"initializer_range", "initializer_range", "0.02"},
      {"tie_word_embeddings", "tie_word_embeddings", "true"},
  }};
}
constexpr auto kGpt2Keys = gpt2_keys("\"gelu_new\"");
constexpr auto kBigCodeKeys = gpt2_keys("\"gelu_pytorch_tanh\"");
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

// Queries are as many as hidden_size; keys and values have one head for all.
constexpr TensorRow kBigCodeTensors[] = {
    {"transformer.wte.weight", "embedding.weight", "V", "D"},
    {"transformer.wpe.weight", "positions.weight", "P", "D"},
    {"transformer.h.#.ln_1.*", "layers.#.self_attention_norm.*", "D"},
    {"transformer.h.#.attn.c_attn.*", "layers.#.self_attention.qkv.*", "QKK", "D"},
    {"transformer.h.#.attn.c_proj.*", "layers.#.self_attention.out.*", "D", "D"},
    {"transformer.h.#.ln_2.*", "layers.#.feed_forward_norm.*", "D"},
    {"transformer.h.#.mlp.c_fc.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"transformer.h.#.mlp.c_proj.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"transformer.ln_f.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};
constexpr FixedKey kBigCodeFixed[] = {
    {"multi_query", "true", "true"},
    {"scale_attn_weights", "true", "true"},
    {"add_cross_attention", "false", "false"},
};

void read_gpt2(const Json& theirs, Json& model, Reasons&) {
  const auto inner = theirs.find("n_inner");
  if (inner == theirs.end() || inner->is_null()) {
    model["intermediate_size"] = 4 * model.at("hidden_size").get<int64_t>();
  }
}

void read_bigcode(const Json& theirs, Json& model, Reasons& reasons) {
  read_gpt2(theirs, model, reasons);
  model["num_key_value_heads"] = 1;
}

void refuse_bigcode(const Config& config, Reasons& reasons) {
  const ModelOptions& model = config.model;
  const int64_t groups =
      model.num_key_value_heads > 0 ? model.num_key_value_heads : model.num_attention_heads;
  if (groups == 1) return;
  reasons.push_back(
      concat("model.num_key_value_heads: ", groups, " has no place in gpt_bigcode, which has 1"));
}

// llama.cpp's converter reads n_ctx.
void write_gpt2(const ModelFacts& facts, Json& theirs) {
  theirs["n_ctx"] = facts.config.model.max_position_embeddings;
}

constexpr KeyRow kNeoxKeys[] = {
    {"hidden_size", "hidden_size", "6144"},
    {"num_hidden_layers", "num_hidden_layers", "44"},
    {"num_attention_heads", "num_attention_heads", "64"},
    {"intermediate_size", "intermediate_size", "24576"},
    {"hidden_act", "hidden_act", "\"gelu\""},
    {"hidden_dropout", "dropout", "0.0"},
    {"attention_dropout", "attention_dropout", "0.0"},
    {"max_position_embeddings", "max_position_embeddings", "2048"},
    {"layer_norm_eps", "norm_eps", "1e-05"},
    {"initializer_range", "initializer_range", "0.02"},
    {"tie_word_embeddings", "tie_word_embeddings", "false"},
    {"use_parallel_residual", "parallel_residual", "true"},
};
constexpr FixedKey kNeoxFixed[] = {{"attention_bias", "true", "true"}};
constexpr ClassDefault kNeoxIds[] = {
    {"vocab_size", "50432"}, {"bos_token_id", "0"}, {"eos_token_id", "2"}};
// Also of StarCoder 2.
constexpr FixedOption kNeoxOptions[] = {
    {"norm", "layernorm"},  {"norm_position", "pre"}, {"position_embedding", "rope"},
    {"final_norm", "true"}, {"bias", "true", true},   {"scale_embeddings", "false", true},
};
constexpr TensorRow kNeoxTensors[] = {
    {"gpt_neox.embed_in.weight", "embedding.weight", "V", "D"},
    {"gpt_neox.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*", "D"},
    {"gpt_neox.layers.#.post_attention_layernorm.*", "layers.#.feed_forward_norm.*", "D"},
    {"gpt_neox.layers.#.attention.query_key_value.*", "layers.#.self_attention.qkv.*", "DDD", "D",
     Stream::kNone, Change::kByHead},
    {"gpt_neox.layers.#.attention.dense.*", "layers.#.self_attention.out.*", "D", "D"},
    {"gpt_neox.layers.#.mlp.dense_h_to_4h.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"gpt_neox.layers.#.mlp.dense_4h_to_h.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"gpt_neox.final_layer_norm.*", "norm.*", "D"},
    {"embed_out.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

// Files of today have rope_parameters; older ones rotary_emb_base and rotary_pct.
void read_neox(const Json& theirs, Json& model, Reasons& reasons) {
  Json all = theirs;
  all["rope_theta"] = value_of(theirs, "rotary_emb_base", value_of(theirs, "rope_theta", 10000.0));
  read_rope(all, model, reasons);
  read_rotary_share(theirs, 0.25, model, reasons, "rotary_pct");
}

void write_neox(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs.erase("head_dim");  // the class has none
  write_rotary_share(model, theirs, "rotary_pct");
  theirs["rotary_emb_base"] = model.rope_theta;
}

void refuse_neox(const Config& config, Reasons& reasons) {
  if (config.model.rope_layout == RopeLayout::kInterleaved) {
    reasons.emplace_back("model.rope_layout: interleaved has no place in gpt_neox");
  }
}

constexpr KeyRow kOptKeys[] = {
    {"hidden_size", "hidden_size", "768"},
    {"num_hidden_layers", "num_hidden_layers", "12"},
    {"num_attention_heads", "num_attention_heads", "12"},
    {"ffn_dim", "intermediate_size", "3072"},
    {"activation_function", "hidden_act", "\"relu\""},
    {"dropout", "dropout", "0.1"},
    {"attention_dropout", "attention_dropout", "0.0"},
    {"max_position_embeddings", "max_position_embeddings", "2048"},
    {"init_std", "initializer_range", "0.02"},
    {"tie_word_embeddings", "tie_word_embeddings", "true"},
};
constexpr FixedKey kOptFixed[] = {{"enable_bias", "true", "true"},
                                  {"layer_norm_elementwise_affine", "true", "true"}};
constexpr ClassDefault kOptIds[] = {
    {"vocab_size", "50272"}, {"pad_token_id", "1"}, {"bos_token_id", "2"}, {"eos_token_id", "2"}};
constexpr FixedOption kOptOptions[] = {
    {"norm", "layernorm"},
    {"norm_eps", "1e-05"},
    {"bias", "true", true},
    {"position_embedding", "learned"},
    {"scale_embeddings", "false", true},
};
constexpr TensorRow kOptTensors[] = {
    {"model.decoder.embed_tokens.weight", "embedding.weight", "V", "D"},
    {"model.decoder.embed_positions.weight", "positions.weight", "P", "D", Stream::kNone,
     Change::kTwoRows},
    {"model.decoder.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "layers.#.self_attention.qkv.*",
     "DDD", "D"},
    {"model.decoder.layers.#.self_attn.out_proj.*", "layers.#.self_attention.out.*", "D", "D"},
    {"model.decoder.layers.#.self_attn_layer_norm.*", "layers.#.self_attention_norm.*", "D"},
    {"model.decoder.layers.#.fc1.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"model.decoder.layers.#.fc2.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"model.decoder.layers.#.final_layer_norm.*", "layers.#.feed_forward_norm.*", "D"},
    {"model.decoder.final_layer_norm.*", "norm.*", "D", "", Stream::kNone, Change::kNone,
     &ModelFacts::final_norm},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

void read_opt(const Json& theirs, Json& model, Reasons& reasons) {
  const Json width = value_of(theirs, "word_embed_proj_dim", model.at("hidden_size"));
  if (width != model.at("hidden_size")) {
    reasons.push_back(concat("word_embed_proj_dim is ", width.dump(),
                             ", Tapestry's embeddings are as wide as hidden_size, ",
                             model.at("hidden_size").dump()));
  }
  const bool pre = value_of(theirs, "do_layer_norm_before", true) == true;
  model["norm_position"] = pre ? "pre" : "post";
  model["final_norm"] = pre && value_of(theirs, "_remove_final_layer_norm", false) == false;
}

void write_opt(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  const bool pre = model.norm_position == NormPosition::kPre;
  theirs["do_layer_norm_before"] = pre;
  theirs["_remove_final_layer_norm"] = pre && !model.has_final_norm();
  theirs["word_embed_proj_dim"] = model.hidden_size;
}

void refuse_opt(const Config& config, Reasons& reasons) {
  const ModelOptions& model = config.model;
  const bool post = model.norm_position == NormPosition::kPost;
  if (!post && model.norm_position != NormPosition::kPre) {
    reasons.push_back(
        concat("model.norm_position: ", name_of(model.norm_position), " has no place in opt"));
  }
  if (post && model.has_final_norm()) {
    reasons.emplace_back("model.final_norm: true has no place in opt without norm_position: pre");
  }
}

constexpr KeyRow kStarcoderKeys[] = {
    {"hidden_size", "hidden_size", "3072"},
    {"intermediate_size", "intermediate_size", "12288"},
    {"num_hidden_layers", "num_hidden_layers", "30"},
    {"num_attention_heads", "num_attention_heads", "24"},
    {"num_key_value_heads", "num_key_value_heads", "2"},
    {"hidden_act", "hidden_act", "\"gelu_pytorch_tanh\""},
    {"max_position_embeddings", "max_position_embeddings", "4096"},
    {"norm_epsilon", "norm_eps", "1e-05"},
    {"initializer_range", "initializer_range", "0.018042"},
    {"residual_dropout", "dropout", "0.0"},
    {"embedding_dropout", "dropout", "0.0", 0, true},
    {"attention_dropout", "attention_dropout", "0.0"},
    {"tie_word_embeddings", "tie_word_embeddings", "true"},
};
constexpr FixedKey kStarcoderFixed[] = {{"use_bias", "true", "true"}};
constexpr ClassDefault kStarcoderIds[] = {
    {"vocab_size", "49152"}, {"bos_token_id", "50256"}, {"eos_token_id", "50256"}};
constexpr TensorRow kStarcoderTensors[] = {
    {"model.embed_tokens.weight", "embedding.weight", "V", "D"},
    {"model.layers.#.input_layernorm.*", "layers.#.self_attention_norm.*", "D"},
    {"model.layers.#.self_attn.{q_proj,k_proj,v_proj}.*", "layers.#.self_attention.qkv.*", "QKK",
     "D", Stream::kNone, Change::kToHalves},
    {"model.layers.#.self_attn.o_proj.*", "layers.#.self_attention.out.*", "D", "Q"},
    {"model.layers.#.post_attention_layernorm.*", "layers.#.feed_forward_norm.*", "D"},
    {"model.layers.#.mlp.c_fc.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"model.layers.#.mlp.c_proj.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"model.norm.*", "norm.*", "D"},
    {"lm_head.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::untied},
};

void read_starcoder(const Json& theirs, Json& model, Reasons& reasons) {
  read_rope(theirs, model, reasons);
  const Json window = value_of(theirs, "sliding_window", 0);
  if (!window.is_number_integer()) {
    reasons.push_back(concat("sliding_window is ", window.dump(), ", expected an integer or null"));
    return;
  }
  model["attention_window"] = window;
}

void write_starcoder(const ModelFacts& facts, Json& theirs) {
  const ModelOptions& model = facts.config.model;
  write_rope(model, theirs);
  theirs.erase("head_dim");  // the class has none
  theirs["sliding_window"] =
      model.attention_window > 0 ? Json(model.attention_window) : Json(nullptr);
}

}  // namespace

extern const Architecture kGpt2 = {
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

extern const Architecture kGptBigCode = {
    .name = "gpt_bigcode",
    .prefix = "transformer.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "GPTBigCodeForCausalLM"}},
    .headless = "GPTBigCodeModel",
    .keys = kBigCodeKeys,
    .fixed = kBigCodeFixed,
    .options = kGpt2Options,
    .ids = kGpt2Ids,
    .tensors = kBigCodeTensors,
    .skipped = {"transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias", "lm_head.weight"},
    .tied = {{"transformer.wte.weight", "lm_head.weight"}},
    .carried = {"num_key_value_heads"},
    .read_more = read_bigcode,
    .refuse_more = refuse_bigcode,
};

extern const Architecture kGptNeox = {
    .name = "gpt_neox",
    .prefix = "gpt_neox.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "GPTNeoXForCausalLM"}},
    .headless = "GPTNeoXModel",
    .keys = kNeoxKeys,
    .fixed = kNeoxFixed,
    .options = kNeoxOptions,
    .ids = kNeoxIds,
    .tensors = kNeoxTensors,
    .skipped = {"gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
                "gpt_neox.layers.*.attention.rotary_emb.inv_freq", "embed_out.weight"},
    .tied = {{"gpt_neox.embed_in.weight", "embed_out.weight"}},
    .renamings = {{"lm_head.", "embed_out."}},
    .carried = {"partial_rotary_factor"},
    .read_more = read_neox,
    .write_more = write_neox,
    .refuse_more = refuse_neox,
};

extern const Architecture kStarcoder2 = {
    .name = "starcoder2",
    .prefix = "model.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "Starcoder2ForCausalLM"}},
    .headless = "Starcoder2Model",
    .keys = kStarcoderKeys,
    .fixed = kStarcoderFixed,
    .options = kNeoxOptions,
    .ids = kStarcoderIds,
    .tensors = kStarcoderTensors,
    .skipped = {"model.layers.*.self_attn.rotary_emb.inv_freq", "lm_head.weight"},
    .tied = {{"model.embed_tokens.weight", "lm_head.weight"}},
    .carried = {"attention_window"},
    .read_more = read_starcoder,
    .write_more = write_starcoder,
};

extern const Architecture kOpt = {
    .name = "opt",
    .prefix = "model.",
    .type = ModelType::kDecoder,
    .classes = {{"clm", "OPTForCausalLM"}},
    .headless = "OPTModel",
    .keys = kOptKeys,
    .fixed = kOptFixed,
    .options = kOptOptions,
    .ids = kOptIds,
    .tensors = kOptTensors,
    .skipped = {"lm_head.weight"},
    .tied = {{"model.decoder.embed_tokens.weight", "lm_head.weight"}},
    .only_trained = {"layerdrop"},
    .carried = {"norm_position", "final_norm"},
    .read_more = read_opt,
    .write_more = write_opt,
    .refuse_more = refuse_opt,
};

}  // namespace tapestry::interop
