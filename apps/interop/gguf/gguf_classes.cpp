#include "apps/interop/gguf/gguf_classes.h"

#include <algorithm>
#include <array>

#include "apps/interop/gguf/gguf_engine.h"

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
constexpr TensorRow plus_one(const char* theirs, const char* ours, const char* size = "D",
                             bool ModelFacts::*when = nullptr) {
  return {theirs, ours, size, "", Stream::kNone, Change::kPlusOne, when};
}
// Their engine has whole weights of norms.
constexpr TensorRow kGemmaTensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    plus_one("blk.#.attn_norm.weight", "layers.#.self_attention_norm.weight"),
    plus_one("blk.#.post_attention_norm.weight", "layers.#.self_attention_norm.out.weight", "D",
             &ModelFacts::sandwich),
    {"blk.#.{attn_q,attn_k,attn_v}.weight", "layers.#.self_attention.qkv.weight", "QKK", "D",
     Stream::kNone, Change::kToHalves},
    plus_one("blk.#.attn_q_norm.weight", "layers.#.self_attention.q_norm.weight", "H",
             &ModelFacts::normed_heads),
    plus_one("blk.#.attn_k_norm.weight", "layers.#.self_attention.k_norm.weight", "H",
             &ModelFacts::normed_heads),
    {"blk.#.attn_output.weight", "layers.#.self_attention.out.weight", "D", "Q"},
    plus_one("blk.#.ffn_norm.weight", "layers.#.feed_forward_norm.weight"),
    plus_one("blk.#.post_ffw_norm.weight", "layers.#.feed_forward_norm.out.weight", "D",
             &ModelFacts::sandwich),
    {"blk.#.{ffn_gate,ffn_up}.weight", "layers.#.feed_forward.up.weight", "FF", "D"},
    {"blk.#.ffn_down.weight", "layers.#.feed_forward.down.weight", "D", "F"},
    plus_one("output_norm.weight", "norm.weight"),
};
constexpr TensorRow kOlmo2Tensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.{attn_q,attn_k,attn_v}.weight", "layers.#.self_attention.qkv.weight", "QKK", "D",
     Stream::kNone, Change::kToHalves},
    {"blk.#.attn_q_norm.weight", "layers.#.self_attention.q_norm.weight", "Q"},
    {"blk.#.attn_k_norm.weight", "layers.#.self_attention.k_norm.weight", "K"},
    {"blk.#.attn_output.weight", "layers.#.self_attention.out.weight", "D", "Q"},
    {"blk.#.post_attention_norm.weight", "layers.#.self_attention_norm.weight", "D"},
    {"blk.#.{ffn_gate,ffn_up}.weight", "layers.#.feed_forward.up.weight", "FF", "D"},
    {"blk.#.ffn_down.weight", "layers.#.feed_forward.down.weight", "D", "F"},
    {"blk.#.post_ffw_norm.weight", "layers.#.feed_forward_norm.weight", "D"},
    {"output_norm.weight", "norm.weight", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
};
constexpr TensorRow kNeoxTensors[] = {
    {"token_embd.weight", "embedding.weight", "V", "D"},
    {"blk.#.attn_norm.*", "layers.#.self_attention_norm.*", "D"},
    {"blk.#.attn_qkv.*", "layers.#.self_attention.qkv.*", "DDD", "D"},
    {"blk.#.attn_output.*", "layers.#.self_attention.out.*", "D", "D"},
    {"blk.#.ffn_norm.*", "layers.#.feed_forward_norm.*", "D"},
    {"blk.#.ffn_up.*", "layers.#.feed_forward.up.*", "F", "D"},
    {"blk.#.ffn_down.*", "layers.#.feed_forward.down.*", "D", "F"},
    {"output_norm.*", "norm.*", "D"},
    {"output.weight", "output.weight", "V", "D", Stream::kNone, Change::kNone, &ModelFacts::untied},
    // Their engine wants a classifier of its own.
    {"output.weight", "embedding.weight", "V", "D", Stream::kNone, Change::kNone,
     &ModelFacts::tied},
};
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
constexpr std::array<GgufKey, 12> kLlamaKeys = {{
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
}};

template <class... More>
constexpr std::array<GgufKey, 12 + sizeof...(More)> llama_keys_and(More... more) {
  std::array<GgufKey, 12 + sizeof...(More)> all{};
  std::ranges::copy(kLlamaKeys, all.begin());
  size_t next = kLlamaKeys.size();
  ((all[next++] = more), ...);
  return all;
}
constexpr GgufKey kWindow{"attention.sliding_window", "sliding_window", GgufKey::kInteger, false,
                          [](const ModelFacts& facts) {
                            const int64_t window = options(facts).attention_window;
                            return window > 0 ? integer(window) : Value();
                          }};
Value above_zero(double value) { return value > 0 ? Value(value) : Value(); }
constexpr GgufKey kScoreCap{
    "attn_logit_softcapping", "attn_logit_softcapping", GgufKey::kReal, false,
    [](const ModelFacts& facts) { return above_zero(options(facts).attention_softcap); }};
constexpr GgufKey kLogitCap{
    "final_logit_softcapping", "final_logit_softcapping", GgufKey::kReal, false,
    [](const ModelFacts& facts) { return above_zero(options(facts).logit_softcap); }};
constexpr auto kGemma2Keys = llama_keys_and(kWindow, kScoreCap, kLogitCap);
constexpr auto kGemma3Keys = llama_keys_and(kWindow, kLogitCap);
constexpr GgufKey kNeoxKeys[] = {
    kContext,
    kWidth,
    kLayers,
    kInner,
    kHeads,
    {"rope.dimension_count", nullptr, GgufKey::kInteger, true,
     [](const ModelFacts& facts) {
       const ModelOptions& o = options(facts);
       return integer(static_cast<int64_t>(static_cast<double>(o.chosen_head_size()) *
                                           o.partial_rotary_factor));
     }},
    {"use_parallel_residual", "parallel_residual", GgufKey::kFlag, true,
     [](const ModelFacts& facts) { return integer(options(facts).parallel_residual ? 1 : 0); }},
    {"attention.layer_norm_epsilon", "norm_eps", GgufKey::kReal, true, norm_eps},
    kVocabulary,
    {"rope.freq_base", "rope_theta", GgufKey::kReal, false,
     [](const ModelFacts& facts) { return Value(options(facts).rope_theta); }},
};

}  // namespace

std::span<const GgufClass> gguf_classes() {
  static const HiddenAct swiglu{Activation::kSilu, /*gated=*/true};
  static const HiddenAct geglu{Activation::kGeluTanh, /*gated=*/true};
  static const GgufClass all[] = {{.name = "llama",
                                   .architecture = kLlama,
                                   .tensors = kLlamaTensors,
                                   .keys = kLlamaKeys,
                                   .act = swiglu,
                                   .no_bias = true},
                                  {.name = "qwen2",
                                   .architecture = kQwen2,
                                   .tensors = kQwenTensors,
                                   .keys = kLlamaKeys,
                                   .act = swiglu},
                                  {.name = "qwen3",
                                   .architecture = kQwen3,
                                   .tensors = kQwenTensors,
                                   .keys = kLlamaKeys,
                                   .act = swiglu,
                                   .no_bias = true},
                                  {.name = "gemma",
                                   .architecture = kGemma,
                                   .tensors = kGemmaTensors,
                                   .keys = kLlamaKeys,
                                   .act = geglu,
                                   .no_bias = true,
                                   .refuse_more = gguf_engine::refuse_gemma},
                                  {.name = "gemma2",
                                   .architecture = kGemma2,
                                   .tensors = kGemmaTensors,
                                   .keys = kGemma2Keys,
                                   .act = geglu,
                                   .no_bias = true,
                                   .windows = true,
                                   .refuse_more = gguf_engine::refuse_gemma2,
                                   .complete = gguf_engine::complete_gemma2},
                                  {.name = "gemma3",
                                   .architecture = kGemma3,
                                   .tensors = kGemmaTensors,
                                   .keys = kGemma3Keys,
                                   .act = geglu,
                                   .no_bias = true,
                                   .windows = true,
                                   .refuse_more = gguf_engine::refuse_gemma3,
                                   .complete = gguf_engine::complete_gemma3},
                                  {.name = "olmo2",
                                   .architecture = kOlmo2,
                                   .tensors = kOlmo2Tensors,
                                   .keys = kLlamaKeys,
                                   .act = swiglu,
                                   .no_bias = true},
                                  {.name = "smollm3",
                                   .architecture = kSmolLm3,
                                   .tensors = kLlamaTensors,
                                   .keys = kLlamaKeys,
                                   .act = swiglu,
                                   .no_bias = true,
                                   .refuse_more = gguf_engine::refuse_smollm3},
                                  {.name = "gptneox",
                                   .architecture = kGptNeox,
                                   .tensors = kNeoxTensors,
                                   .keys = kNeoxKeys,
                                   .act = Activation::kGeluTanh,
                                   .or_act = Activation::kGelu,
                                   .complete = gguf_engine::complete_neox},
                                  {.name = "gpt2",
                                   .architecture = kGpt2,
                                   .tensors = kGpt2Tensors,
                                   .keys = kGpt2Keys,
                                   .act = Activation::kGeluTanh,
                                   .rotates = false}};
  return all;
}

const GgufClass* find_gguf_class(const std::string& name) {
  for (const GgufClass& one : gguf_classes()) {
    if (one.name == name) return &one;
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
