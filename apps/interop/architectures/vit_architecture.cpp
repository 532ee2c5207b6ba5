// The Vision Transformer, and DeiT, which has a token more. Their files have the old names of its
// parts or the new ones; the old ones are written.
#include "apps/interop/architectures/architectures.h"

namespace tapestry::interop {
namespace {

constexpr KeyRow kKeys[] = {
    {"hidden_size", "hidden_size", "768"},
    {"num_hidden_layers", "num_hidden_layers", "12"},
    {"num_attention_heads", "num_attention_heads", "12"},
    {"intermediate_size", "intermediate_size", "3072"},
    {"hidden_act", "hidden_act", "\"gelu\""},
    {"hidden_dropout_prob", "dropout", "0.0"},
    {"attention_probs_dropout_prob", "attention_dropout", "0.0"},
    {"layer_norm_eps", "norm_eps", "1e-12"},
    {"initializer_range", "initializer_range", "0.02"},
    {"patch_size", "patch_size", "16"},
};
constexpr FixedKey kFixed[] = {{"qkv_bias", "true", "true"}};
constexpr FixedOption kOptions[] = {
    {"norm", "layernorm"},  {"norm_position", "pre"}, {"position_embedding", "learned"},
    {"final_norm", "true"}, {"bias", "true", true},   {"head", "linear"},
};
constexpr TensorRow kTensors[] = {
    {"^embeddings.cls_token", "cls.weight", "1", "D", Stream::kNone, Change::kLeadingAxis},
    {"^embeddings.position_embeddings", "positions.weight", "P", "D", Stream::kNone,
     Change::kLeadingAxis},
    {"^embeddings.patch_embeddings.projection.*", "patch_embedding.*", "D", "I", Stream::kNone,
     Change::kPatches},
    {"^encoder.layer.#.attention.attention.{query,key,value}.*", "layers.#.self_attention.qkv.*",
     "DKK", "D"},
    {"^encoder.layer.#.attention.output.dense.*", "layers.#.self_attention.out.*", "D", "D"},
    {"^encoder.layer.#.intermediate.dense.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"^encoder.layer.#.output.dense.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"^encoder.layer.#.layernorm_before.*", "layers.#.self_attention_norm.*", "D"},
    {"^encoder.layer.#.layernorm_after.*", "layers.#.feed_forward_norm.*", "D"},
    {"^layernorm.*", "norm.*", "D"},
    {"classifier.*", "classifier.*", "C", "D"},
};

constexpr FixedOption kDeitOptions[] = {
    {"norm", "layernorm"},          {"norm_position", "pre"}, {"position_embedding", "learned"},
    {"final_norm", "true"},         {"bias", "true", true},   {"head", "linear"},
    {"distillation_token", "true"},
};
constexpr TensorRow kDeitTensors[] = {
    {"^embeddings.distillation_token", "distillation.weight", "1", "D", Stream::kNone,
     Change::kLeadingAxis},
};

Architecture of_family(Architecture one) {
  one.type = ModelType::kVit;
  one.keys = kKeys;
  one.fixed = kFixed;
  one.tensors = kTensors;
  return one;
}

}  // namespace

extern const Architecture kVit = of_family({
    .name = "vit",
    .prefix = "vit.",
    .classes = {{"classification", "ViTForImageClassification"}},
    .headless = "ViTModel",
    .options = kOptions,
    .ids = {},
    .skipped = {"vit.pooler.*"},
    .renamings = {{"vit.layers.", "vit.encoder.layer."},
                  {".attention.q_proj.", ".attention.attention.query."},
                  {".attention.k_proj.", ".attention.attention.key."},
                  {".attention.v_proj.", ".attention.attention.value."},
                  {".attention.o_proj.", ".attention.output.dense."},
                  {".mlp.fc1.", ".intermediate.dense."},
                  {".mlp.fc2.", ".output.dense."}},
});

// A model that answers by the second token, too (WithTeacher), is another class.
extern const Architecture kDeit = of_family({
    .name = "deit",
    .prefix = "deit.",
    .classes = {{"classification", "DeiTForImageClassification"}},
    .headless = "DeiTModel",
    .options = kDeitOptions,
    .ids = {},
    .own_tensors = kDeitTensors,
    .skipped = {"deit.pooler.*"},
    .renamings = {{"deit.layers.", "deit.encoder.layer."},
                  {".attention.q_proj.", ".attention.attention.query."},
                  {".attention.k_proj.", ".attention.attention.key."},
                  {".attention.v_proj.", ".attention.attention.value."},
                  {".attention.o_proj.", ".attention.output.dense."},
                  {".mlp.fc1.", ".intermediate.dense."},
                  {".mlp.fc2.", ".output.dense."}},
});

}  // namespace tapestry::interop
