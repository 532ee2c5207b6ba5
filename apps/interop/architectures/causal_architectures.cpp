// GPT-2.
#include "apps/interop/architectures/architectures.h"

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

}  // namespace tapestry::interop
