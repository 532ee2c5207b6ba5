#include "apps/interop/architectures/architectures.h"

#include <algorithm>

namespace tapestry::interop {

// A new one: a declaration, and its place in architectures().
extern const Architecture kMistral;
extern const Architecture kBert, kRoberta, kXlmRoberta, kCamembert;
extern const Architecture kDistilBert, kElectra, kModernBert;
extern const Architecture kPegasus, kBart, kMbart, kM2m100;
extern const Architecture kT5, kMt5;
extern const Architecture kVit, kDeit;
extern const Architecture kOpt, kStarcoder2, kGptBigCode;
extern const Architecture kGptj;

namespace {

struct ActivationRow {
  const char* theirs;
  const char* ours;
  const char* gated;
};

// If they have several names for one, the first is written.
constexpr ActivationRow kActivationRows[] = {
    {"relu", "relu", nullptr},
    {"relu2", "relu2", nullptr},
    {"gelu", "gelu", "geglu"},
    {"gelu_python", "gelu", "geglu"},
    {"gelu_new", "gelu_tanh", "geglu_tanh"},
    {"gelu_pytorch_tanh", "gelu_tanh", "geglu_tanh"},
    {"gelu_fast", "gelu_tanh", "geglu_tanh"},
    {"gelu_accurate", "gelu_tanh", "geglu_tanh"},
    {"gelu_python_tanh", "gelu_tanh", "geglu_tanh"},
    {"silu", "silu", "swiglu"},
    {"swish", "silu", "swiglu"},
};

// Features that are off in every class of theirs. A key that is neither here nor in the tables of a
// class is an error there (undetermined_keys()).
constexpr OffOption kOff[] = {
    {"dropout", "0"},
    {"attention_dropout", "0"},
    {"activation_dropout", "0"},
    {"kv_latent_size", "0"},
    {"decoder_self_attention", "attention"},
    {"num_key_value_heads", "0"},
    {"head_size", "0"},
    {"value_head_size", "0"},
    {"attention_window", "0"},
    {"prefix_lm", "false"},
    {"type_vocab_size", "0"},
    {"embedding_norm", "false"},
    {"output_bias", "false"},
    {"masked_head", "transform"},
    {"pooler", "tanh", "type", "encoder"},
    {"pooled_tokens", "false", "type", "encoder"},
    {"classifier_pooling", "cls", "type", "encoder"},
    {"embedding_size", "0", "type", "encoder"},
    {"distillation_token", "false", "type", "vit"},
    {"attention_bias", "auto"},
    {"qk_norm", "none"},
    {"attention_scale", "0"},
    {"attention_softcap", "0"},
    {"layer_types", "[]"},
    {"window_rope_theta", "0", "position_embedding", "rope"},
    {"partial_rotary_factor", "1", "position_embedding", "rope"},
    {"norm_unit_offset", "false"},
    {"parallel_residual", "false", "norm_position", "pre"},
    {"shared_norm", "false", "norm_position", "pre"},
    {"first_norm", "true", "norm_position", "pre"},
    {"residual_scalars", "false", "norm_position", "pre"},
    {"residual_scalars", "false", "norm_position", "sandwich"},
    {"residual_scalars", "false", "norm_position", "branch"},
    {"residual_scalars", "false", "norm_position", "none"},
    {"value_residual", "false"},
    {"logit_scale", "1"},
    {"logit_softcap", "0"},
    {"share_encoder_decoder_embeddings", "false"},
};

}  // namespace

std::span<const OffOption> off_options() { return kOff; }

const OffOption* off_option(const std::string& key) {
  for (const OffOption& row : kOff) {
    if (key == row.key) return &row;
  }
  return nullptr;
}

const char* our_activation(const std::string& theirs, bool gated) {
  for (const ActivationRow& row : kActivationRows) {
    if (theirs == row.theirs) return gated ? row.gated : row.ours;
  }
  return nullptr;
}

const char* their_activation(const std::string& ours) {
  for (const ActivationRow& row : kActivationRows) {
    if (ours == row.ours || (row.gated != nullptr && ours == row.gated)) return row.theirs;
  }
  return nullptr;
}

std::vector<TensorPair> tensor_pairs(const Architecture& architecture, const ModelFacts& facts) {
  std::vector<TensorPair> pairs = expand(architecture.tensors, facts, architecture.prefix);
  for (TensorPair& pair : expand(architecture.own_tensors, facts, architecture.prefix)) {
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

bool is_carried_otherwise(const std::string& key) {
  static const char* const kKeys[] = {"type",
                                      "initializer",
                                      "initializer_range",
                                      "zero_branches",
                                      "dropout",
                                      "attention_dropout",
                                      "recompute",
                                      "activation_dropout",
                                      "norm_running_variance",
                                      "bias",
                                      "num_key_value_heads",
                                      "output_bias",
                                      "value_head_size"};
  return key.starts_with("rope_") ||
         std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

const std::vector<const Architecture*>& architectures() {
  static const std::vector<const Architecture*> all = {
      &kGpt2,       &kLlama,      &kMistral, &kQwen2,      &kQwen3,   &kBert,       &kRoberta,
      &kXlmRoberta, &kCamembert,  &kMarian,  &kPegasus,    &kBart,    &kMbart,      &kM2m100,
      &kT5,         &kMt5,        &kVit,     &kGemma,      &kGemma2,  &kGemma3,     &kOlmo2,
      &kSmolLm3,    &kGptNeox,    &kOpt,     &kDistilBert, &kElectra, &kModernBert, &kDeit,
      &kStarcoder2, &kGptBigCode, &kGptj,    &kPhi,        &kPhi3,    &kCohere,     &kCohere2};
  return all;
}

const Architecture* find_architecture(const std::string& name) {
  for (const Architecture* architecture : architectures()) {
    if (architecture->name == name) return architecture;
  }
  return nullptr;
}

ModelFacts facts_for(const Architecture& architecture, const Config& config, const Counts& counts) {
  ModelFacts facts(config, counts);
  if (!architecture.may_lack_biases) return facts;
  facts.biases = config.model.bias;
  facts.query_biases = config.model.has_query_bias();
  facts.attention_out_biases = config.model.has_attention_out_bias();
  facts.norm_biases = false;
  return facts;
}

}  // namespace tapestry::interop
