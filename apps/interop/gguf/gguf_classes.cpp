#include "apps/interop/gguf/gguf_classes.h"

#include <array>

namespace tapestry::interop {
namespace {

using Value = std::optional<double>;

// Llama's kin. `pairs`: which numbers of a head their engine turns together.
constexpr std::array<TensorRow, 11> llama_tensors(Change pairs) {
  return {{
      {"token_embd.weight", "embedding.weight", "V", "D"},
      {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
      {"blk.#.{attn_q,attn_k,attn_v}.*", "layers.#.self_attention.qkv.*", "QKK", "D", Stream::kNone,
       pairs},
      {"blk.#.attn_q_norm.weight", "layers.#.self_attention.q_norm.weight", "H", "", Stream::kNone,
       Change::kNone, &ModelFacts::normed_heads},
      {"blk.#.attn_k_norm.weight", "layers.#.self_attention.k_norm.weight", "H", "", Stream::kNone,
       Change::kNone, &ModelFacts::normed_heads},
      {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "Q"},
      {"blk.#.ffn_norm.*", "layers.#.feed_forward_norm.*", "D"},
      {"blk.#.{ffn_gate,ffn_up}.*", "layers.#.feed_forward.up.*", "FF", "D"},
      {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
      {"output_norm.*", "norm.*", "D"},
      {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone,
       &ModelFacts::untied},
  }};
}
constexpr auto kLlamaTensors = llama_tensors(Change::kToNeighbours);
constexpr auto kQwenTensors = llama_tensors(Change::kToHalves);
constexpr TensorRow kGpt2Tensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"position_embd.weight", "positions.weight", "P", "D"},
    {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
    {"blk.#.attn_qkv.*", "layers.#.self_attention.qkv.*", "DKK", "D"},
    {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "D"},
    {"blk.#.ffn_norm.*", "layers.#.feed_forward_norm.*", "D"},
    {"blk.#.ffn_up.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"output_norm.*", "norm.*", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
};

const ModelOptions& options(const ModelFacts& facts) { return facts.config.model; }
Value integer(int64_t value) { return static_cast<double>(value); }

// In the order of the files.
constexpr GgufKey kContext{
    "context_length", "max_position_embeddings", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).max_position_embeddings); }};
constexpr GgufKey kWidth{
    "embedding_length", "hidden_size", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).hidden_size); }};
constexpr GgufKey kLayers{
    "block_count", "num_hidden_layers", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).num_hidden_layers); }};
constexpr GgufKey kInner{
    "feed_forward_length", "intermediate_size", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).intermediate_size); }};
constexpr GgufKey kHeads{
    "attention.head_count", "num_attention_heads", GgufKey::kInteger, true,
    [](const ModelFacts& facts) { return integer(options(facts).num_attention_heads); }};
constexpr GgufKey kVocabulary{
    "vocab_size", nullptr, GgufKey::kInteger, false,
    [](const ModelFacts& facts) { return integer(facts.counts.source_vocab); }};
Value norm_eps(const ModelFacts& facts) { return options(facts).norm_eps; }

Value head_size(const ModelFacts& facts) {
  return options(facts).head_size > 0 ? integer(options(facts).head_size) : Value();
}

constexpr GgufKey kGpt2Keys[] = {
    kContext,
    kWidth,
    kLayers,
    kInner,
    kHeads,
    kVocabulary,
    {"attention.layer_norm_epsilon", "norm_eps", GgufKey::kReal, true, norm_eps},
};
constexpr GgufKey kLlamaKeys[] = {
    kContext,
    kWidth,
    kLayers,
    kInner,
    kHeads,
    {"attention.head_count_kv", "num_key_value_heads", GgufKey::kInteger, false,
     [](const ModelFacts& facts) {
       const ModelOptions& o = options(facts);
       return integer(o.num_key_value_heads > 0 ? o.num_key_value_heads : o.num_attention_heads);
     }},
    {"attention.key_length", "head_dim", GgufKey::kInteger, false, head_size},
    {"attention.value_length", nullptr, GgufKey::kInteger, false, head_size},
    {"rope.dimension_count", nullptr, GgufKey::kInteger, false,
     [](const ModelFacts& facts) { return integer(options(facts).chosen_head_size()); }},
    kVocabulary,
    {"attention.layer_norm_rms_epsilon", "norm_eps", GgufKey::kReal, true, norm_eps},
    {"rope.freq_base", "rope_theta", GgufKey::kReal, false,
     [](const ModelFacts& facts) { return Value(options(facts).rope_theta); }},
};

}  // namespace

std::span<const GgufClass> gguf_classes() {
  static const HiddenAct swiglu{Activation::kSilu, /*gated=*/true};
  static const GgufClass all[] = {
      {.architecture = kLlama,
       .tensors = kLlamaTensors,
       .keys = kLlamaKeys,
       .act = swiglu,
       .no_bias = true},
      {.architecture = kQwen2, .tensors = kQwenTensors, .keys = kLlamaKeys, .act = swiglu},
      {.architecture = kQwen3,
       .tensors = kQwenTensors,
       .keys = kLlamaKeys,
       .act = swiglu,
       .no_bias = true},
      {.architecture = kGpt2,
       .tensors = kGpt2Tensors,
       .keys = kGpt2Keys,
       .act = Activation::kGeluTanh,
       .rotates = false}};
  return all;
}

const GgufClass* find_gguf_class(const std::string& name) {
  for (const GgufClass& one : gguf_classes()) {
    if (one.architecture.name == name) return &one;
  }
  return nullptr;
}

Architecture gguf_architecture(const GgufClass& one) {
  Architecture architecture = one.architecture;
  architecture.prefix = "";
  architecture.tensors = one.tensors;
  architecture.own_tensors = {};
  architecture.skipped = {};
  architecture.tied = {};
  architecture.written_twice = {};
  architecture.renamings = {};
  return architecture;
}

}  // namespace tapestry::interop
